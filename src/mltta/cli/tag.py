"""`mltta tag`: images in, labels out."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltta.cli import on_ray as cluster
from mltta.cli import options
from mltta.cli import settings as written
from mltta.errors import ConfigError, MlttaError

if TYPE_CHECKING:
    from mltta.cli.tagging import Effect
    from mltta.tagger import Tagger

OUTPUT, PHOTOS = "Output", "Photos"


class Format(str, Enum):
    table = "table"
    csv = "csv"
    json = "json"
    jsonl = "jsonl"
    parquet = "parquet"
    html = "html"
    coco = "coco"
    fiftyone = "fiftyone"

    __str__ = str.__str__


class KeywordPlace(str, Enum):
    sidecar = "sidecar"
    embed = "embed"


HELP = """Tag images and folders of images.

`mltta tag photo.jpg --labels "dog, cat | kitty, sofa"`

`mltta tag holidays/ --labels my_labels.txt -o tags.csv`

`mltta tag holidays/ -o tags.html`

With `-o` the same command goes on where it stopped, and adds new photos.

`curl https://example.org/photo.jpg | mltta tag -`

`mltta tag s3://bucket/photos --ray -o tags` spreads it over a cluster; `mltta tag tags -o tags.csv` reads that back.

**Exit code**: 0 all images tagged, 1 some could not be (they are listed), 2 wrong usage.
"""


def tag(
    given: Annotated[
        list[str],
        typer.Argument(metavar="PATH…", help="Images, folders that hold some, or - for one on stdin."),
    ],
    labels: Annotated[
        str,
        typer.Option(
            "--labels", "-l", help="everyday, coco, voc, nuswide, a label file, or 'dog, cat | kitty'."
        ),
    ] = "everyday",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file: .csv .json .jsonl .parquet .html .txt; or the screen."),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show at most this many labels, best first.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SCORE",
            help="Show the labels that score at least this; with --top-k, both hold.",
        ),
    ] = None,
    annotate: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each image with its label bars here.")
    ] = None,
    where: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write, for each image, where each label was found here."),
    ] = None,
    allow_urls: Annotated[
        bool, typer.Option("--allow-urls", help="Fetch images given as http:// or https:// addresses.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on as the folders fill, until Ctrl-C.")] = False,
    model: options.Model = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
    verbose: options.Verbose = False,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            help=f"Not what the suffix says: {', '.join(Format)}.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="csv, parquet: a row an image, not a label.", rich_help_panel=OUTPUT),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Start anew, whatever the file holds.", rich_help_panel=OUTPUT),
    ] = False,
    keywords: Annotated[
        KeywordPlace | None,
        typer.Option(help="Labels as keywords, beside photos or in JPEGs.", rich_help_panel=PHOTOS),
    ] = None,
    copy_to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR/{label}", help="Copy photos into folders by label.", rich_help_panel=PHOTOS
        ),
    ] = None,
    link_to: Annotated[
        Path | None,
        typer.Option(metavar="DIR/{label}", help="Link them there instead.", rich_help_panel=PHOTOS),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would go where.", rich_help_panel=PHOTOS),
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="How to look, or adapt: one of `mltta methods`, or your own my_method.py.",
            rich_help_panel=options.MODEL,
        ),
    ] = "auto",
    option: options.Settings = None,
    preset: options.Preset = "paper",
    captions: options.Captions = None,
    synonyms: options.Synonyms = None,
    wordnet: options.Wordnet = False,
    template: options.Template = None,
    prompts: options.Prompts = None,
    descriptions: options.DescriptionFile = None,
    teacher: options.Teacher = None,
    weights: options.Weights = None,
    quick_gelu: options.QuickGelu = None,
    allow_torchscript: options.AllowTorchscript = False,
    allow_remote_code: options.AllowRemoteCode = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images at once on a GPU.", rich_help_panel=options.MACHINE)
    ] = None,
    dtype: options.Dtype = None,
    compile: options.Compile = None,
    accelerate: options.Accelerate = None,
    ray: cluster.Ray = None,
    ray_workers: cluster.Workers = None,
    ray_threads: cluster.Threads = None,
    ray_gpus: cluster.Gpus = 0.0,
    shard_size: cluster.ShardSize = None,
) -> None:
    from mltta.cli.inputs import Sources, open_others, refuse_missing, stamp

    refuse_missing(given)
    from mltta.cli.closing import Closing
    from mltta.cli.early import Early, loading
    from mltta.cli.into_photos import Keywords, Sorted
    from mltta.cli.pictures import Pictures, Thumbnails
    from mltta.cli.tagging import Run, carry_out, open_sink
    from mltta.output.formats import format_of
    from mltta.output.gallery import thumbnail_folder
    from mltta.output.partitions import is_partitions
    from mltta.output.sorting import Sorting
    from mltta.session.execution import Execution
    from mltta.storage.filesystems import is_remote

    execution = Execution(batch_size, compile=compile)
    opened = {
        "model": model,
        "weights": weights,
        "device": "cpu" if ray and not ray_gpus and device == "auto" else device,
        "quick_gelu": quick_gelu,
        "allow_torchscript": allow_torchscript,
        "prompts": prompts,
        "dtype": dtype,
        "accelerate": accelerate,
        "allow_remote_code": allow_remote_code,
    }

    def asked() -> Callable[[], Tagger]:
        described = {
            "captions": captions,
            "template": template,
            "descriptions": descriptions,
            "teacher": teacher,
            "preset": preset,
            "seed": seed,
            "execution": execution,
            "where": where is not None,
            "threshold": threshold,
            "top_k": top_k,
            "allow_urls": allow_urls,
            **written.settings(method, option or []),
        }
        return cluster.builder(opened, options.with_synonyms(labels, synonyms, wordnet), method, described)

    if ray is not None:
        from mltta.distributed.cluster import Size

        alone: dict[str, object] = {
            "--annotate": annotate,
            "--where": where,
            "--watch": watch,
            "--keywords": keywords,
        }
        alone |= {"--copy-to": copy_to, "--link-to": link_to, "--format": format, "--wide": wide}
        cluster.refuse_with_ray(alone)
        code = cluster.tag_on_ray(
            asked,
            given,
            output,
            address=ray,
            size=Size(ray_workers, ray_threads, ray_gpus),
            shard_size=shard_size,
            overwrite=overwrite,
            quiet=quiet,
        )
        raise typer.Exit(code)
    if all(map(is_partitions, given)):
        from mltta.cli.read_back import read_back

        kind = format_of(format.value if format else None, output)
        raise typer.Exit(read_back(given, kind, output, wide=wide, overwrite=overwrite, quiet=quiet))
    far = next(filter(is_remote, given), None)
    if far is not None:
        raise ConfigError(f"{far}: photos in a store are read by workers: add --ray")
    others = open_others(given, allow_urls)
    paths = [Path(path) for path in given if path not in others.names]
    missing = [path for path in paths if not path.exists()]
    if len(missing) < len(given):  # what is there is tagged; what is not is listed with the rest that failed
        paths = [path for path in paths if path not in missing]
    kind = format_of(format.value if format else None, output)
    closing = Closing(failed=[f"{path}: no such file or folder" for path in missing])
    if dry_run and not (keywords or copy_to or link_to):
        raise ConfigError("--dry-run is about --keywords, --copy-to and --link-to: give one of them")
    sortings = [Sorting(own, own is link_to) for own in (copy_to, link_to) if own is not None]
    if any(sorting.home.resolve() == path.resolve() for sorting in sortings for path in paths):
        raise ConfigError(
            "the sorted photos would lie among the others: sort them into a folder of their own"
        )
    effects: list[Effect] = [] if keywords is None else [Keywords(keywords.value, dry_run, closing.unwritten)]
    effects += [Sorted(sorting, dry_run) for sorting in sortings]  # behind, so that copies have the keywords
    effects += [Pictures(own, heat=own is where) for own in (annotate, where) if own is not None]
    if kind == "html":
        effects.append(Thumbnails())
    thumbnails = thumbnail_folder(output) if kind == "html" and output is not None else None
    own_folders = [annotate, where, thumbnails, *(sorting.home for sorting in sortings)]
    others.check(effects=bool(effects), output=output is not None)
    sources = Sources(paths, [own for own in own_folders if own is not None], others.sources)
    files = sources.find()
    if not files and not watch:
        also = f"; {sources.skipped}" if sources.skipped else ""
        raise MlttaError(f"no images in {', '.join(map(str, paths))}{also}")
    if sources.skipped and not quiet:
        typer.echo(sources.skipped, err=True)
    with open_sink(kind, output, wide, overwrite) as sink:
        early = Early(
            () if watch else files, lambda file: not overwrite and sink.done(str(file), stamp(file))
        )
        with loading(), early:  # what takes seconds to load is loaded here, and not before
            tagger = asked()()
        if watch and tagger.method.online:
            raise ConfigError(f"{method} learns from the photos in their order: a folder that fills has none")
        execution.prepare(tagger.backbone, len(files))
        sink.begin(tagger.about(), tagger.labels.names)
        run = Run(tagger, sources, sink, effects, quiet, closing, early)
        code = carry_out(run, files, watch)
    raise typer.Exit(code or closing.code)
