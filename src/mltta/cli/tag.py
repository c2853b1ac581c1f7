"""`mltta tag`: images in, labels out."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from mltta.cli import options
from mltta.errors import MlttaError


class Format(str, Enum):
    table = "table"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


HELP = """Tag images and folders of images.

**Examples**

`mltta tag photo.jpg`

`mltta tag photo.jpg --labels "dog, cat, sofa"`

`mltta tag holidays/ --labels coco --format csv -o tags.csv`

`mltta tag photo.jpg --labels my_labels.txt --top-k 5 --annotate out/`

`curl https://example.org/photo.jpg | mltta tag -`

A label file has one label a line; `sofa | couch | settee` adds synonyms that captions may use.

**Exit code**: 0 all images tagged, 1 some could not be read (they are listed), 2 wrong usage.
"""


def tag(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH…", help="Images, folders that hold some, or - for one on stdin."),
    ],
    labels: Annotated[
        str,
        typer.Option(
            "--labels", "-l", help="everyday, coco, voc, nuswide, a label file, or 'dog, cat | kitty'."
        ),
    ] = "everyday",
    model: options.Model = None,
    weights: options.Weights = None,
    method: Annotated[
        str,
        typer.Option(
            help="How to look, or adapt: one that `mltta methods` lists, or your own file, my_method.py."
        ),
    ] = "auto",
    preset: options.Preset = "paper",
    option: options.Settings = None,
    captions: options.Captions = None,
    synonyms: options.Synonyms = None,
    wordnet: options.Wordnet = False,
    template: options.Template = None,
    prompts: options.Prompts = None,
    descriptions: options.DescriptionFile = None,
    teacher: options.Teacher = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Show at most this many labels, best first.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Show the labels that score at least this; with --top-k, both hold."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print.")] = Format.table,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of the screen.")
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
    device: options.Device = "auto",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images at once on a GPU.")] = None,
    dtype: options.Dtype = None,
    compile: options.Compile = None,
    accelerate: options.Accelerate = None,
    seed: options.Seed = 0,
    quick_gelu: options.QuickGelu = None,
    allow_torchscript: options.AllowTorchscript = False,
    allow_remote_code: options.AllowRemoteCode = False,
    verbose: options.Verbose = False,
) -> None:
    from mltta.cli.sources import open_sources
    from mltta.pipeline.execution import Execution
    from mltta.report.tags import Writer
    from mltta.tagger import Tagger

    sources = open_sources(paths, allow_urls, pictures=annotate is not None or where is not None)
    files, missing = sources.images, sources.missing
    for folder in (annotate, where):
        if folder is not None:
            make_folder(folder)
    execution = Execution(batch_size, compile=compile)
    settings = options.settings(method, option or [])
    table = options.with_synonyms(labels, synonyms, wordnet)
    backbone = options.open_backbone(
        model, weights, device, quick_gelu, allow_torchscript, prompts, dtype, accelerate, allow_remote_code
    )
    tagger = Tagger(
        backbone,
        table,
        method,
        captions=captions,
        template=template,
        descriptions=descriptions,
        teacher=teacher,
        preset=preset,
        seed=seed,
        execution=execution,
        where=where is not None,
        allow_urls=allow_urls,
        **settings,
    )
    execution.prepare(backbone, len(files))
    failed = [f"{path}: no such file or folder" for path in missing]
    used: set[Path] = set()
    with Writer(format.value, output, top_k, threshold) as writer, options.progress() as bar:
        task = bar.add_task("tagging", total=len(files), visible=len(files) > 1)
        for tags in tagger.stream(files):
            tags.image = tags.image or "-"
            writer.write(tags)
            if tags.error is not None:
                failed.append(tags.error)
            else:
                for folder in (annotate, where):
                    if folder is not None:
                        save_picture(tags, folder, used, heat=folder is where)
            bar.advance(task)
    if failed:
        from rich.console import Console

        err = Console(stderr=True, highlight=False)
        err.print(f"[bold]{len(failed)} of {len(files) + len(missing)} could not be tagged:[/bold]")
        for error in failed:
            err.print(f"  {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1)


def make_folder(folder: Path) -> None:
    """Make a folder for pictures before any work is done, or say why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlttaError(f"{folder} cannot be used for pictures: {error.strerror}") from error


def save_picture(tags: Any, folder: Path, used: set[Path], heat: bool) -> None:
    """Write an annotated copy under the image's own name; names that clash within a run get a number."""
    from mltta.images.load import load_image
    from mltta.report.picture import annotate, where_sheet

    stem, n = Path(tags.image).stem, 1
    while (target := folder / (f"{stem}.png" if n == 1 else f"{stem}-{n}.png")) in used:
        n += 1
    used.add(target)
    (where_sheet if heat else annotate)(load_image(tags.image), tags).save(target)
