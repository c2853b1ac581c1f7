"""`mltta tag`: its options, and the tagger they describe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from mltta.cli import groups
from mltta.cli.options import Options, argument, option
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.labels import LabelSet
    from mltta.tagger import Tagger

Format = Literal["table", "csv", "csv-raw", "json", "jsonl", "parquet", "html", "coco", "fiftyone"]


#: the value of --labels that stands for the keywords of the photos
FROM_PHOTOS = "from-photos"


class OutputOptions(Options, panel="Output"):
    format: Format | None = option(
        None, "Output format (default: from the file extension). csv-raw: no protection from formulas.", "-f"
    )
    wide: bool = option(False, "csv, parquet: one row per image instead of one row per label.")
    overwrite: bool = option(False, "Replace the output instead of resuming.")


class FileOptions(Options, panel="Keywords and copies"):
    keywords: Literal["sidecar", "adobe", "embed"] | None = option(
        None, "Write labels as keywords: sidecar (photo.jpg.xmp), adobe (photo.xmp) or embed (into JPEGs)."
    )
    keywords_from: float = option(0.7, "Minimum score of keywords.", min=0, max=1, metavar="SCORE")
    keyword_root: str | None = option(None, "Parent of all keywords: Auto writes Auto|dog.", metavar="NAME")
    copy_to: Path | None = option(None, "Copy photos into one folder per label.", metavar="DIR/{label}")
    link_to: Path | None = option(None, "Link photos into one folder per label.", metavar="DIR/{label}")
    dry_run: bool = option(False, "Only print which files would be written.")


class TagOptions(OutputOptions, FileOptions, groups.AnswerOptions, groups.RunOptions, groups.RayOptions):
    """Tag images and folders of images.

    - `mltta tag photo.jpg --labels "dog, cat | kitty, sofa"`
    - `mltta tag holidays/ --labels my_labels.txt -o tags.csv -o tags.html`
    - `mltta tag holidays/ --keywords sidecar`

    Runs with `-o` are resumable: rerun the command to continue, or to add new photos.

    On a Ray cluster: `mltta tag s3://bucket/photos --ray -o results`. Convert: `mltta tag results -o tags.csv`.

    **Exit code**: 0 all images tagged, 1 some failed (they are listed), 2 usage error.
    """

    images: tuple[str, ...] = argument("PATH…", "Images, folders of images, or - for an image on stdin.")
    labels: str | Any = option(
        "everyday", "A list (everyday, coco, voc, nuswide), a file, 'dog, cat | kitty', or from-photos.", "-l"
    )
    language: str | None = option(
        None, "Language of the labels shown: de es fr it ja nl pl pt tr zh (default: as given)."
    )
    method: str = option("auto", "Method name (see `mltta methods`) or path to a Python file.")
    output: tuple[Path, ...] = option(
        (), "Output files: .csv .json .jsonl .parquet .html .txt (default: the terminal).", "-o"
    )
    top_k: int | None = option(None, "Maximum number of labels per image.", min=1, metavar="N")
    threshold: float | None = option(
        None,
        "Minimum score (default: 0.3, or 0 with --top-k). Combined with --top-k, both apply.",
        min=0,
        max=1,
        metavar="SCORE",
    )
    annotate: Path | None = option(None, "Save images with label bars to DIR.", metavar="DIR")
    where: Path | None = option(None, "Save label heat maps to DIR.", metavar="DIR")
    allow_urls: bool = option(False, "Fetch images from http:// and https:// URLs.")
    watch: bool = option(False, "Keep watching for new photos until Ctrl-C.")
    quiet: bool = option(False, "Hide progress and summary.", "-q")
    verbose: bool = option(False, "Also print the device, precision and batch size.", "-v")


def tag(options: TagOptions) -> None:
    from mltta.cli.inputs import refuse_missing

    refuse_missing(options.images)
    if options.ray is not None and options.labels == FROM_PHOTOS:
        raise ConfigError(f"--labels {FROM_PHOTOS} needs local photos, without --ray")
    if options.ray is not None:
        from mltta.cli.on_ray import tag_on_ray

        raise typer.Exit(tag_on_ray(options, open_tagger))
    from mltta.output.formats import format_of
    from mltta.output.partitions import is_partitions
    from mltta.storage.folders import is_remote

    if options.format and len(options.output) > 1:
        raise ConfigError("--format needs a single output; with several, formats follow the file extensions")
    outputs = {path: format_of(options.format, path) for path in options.output or (None,)}
    addresses = [path for path in options.images if "://" in path]
    if all((path in addresses or os.path.isdir(path)) and is_partitions(path) for path in options.images):
        from mltta.cli.on_ray import read_back

        raise typer.Exit(read_back(options.images, outputs, **options.chosen("wide", "overwrite", "quiet")))
    far = next(filter(is_remote, addresses), None)
    if far is not None:
        raise ConfigError(f"{far}: photos in object storage need --ray")
    from mltta.cli.tagging import tag_here

    raise typer.Exit(tag_here(options, outputs, open_tagger))


def open_tagger(options: TagOptions) -> Tagger:
    """Create the tagger that the options describe, in this process or in a worker."""
    from mltta.tagger import Tagger

    settings: dict[str, Any] = {}
    if options.set or options.settings:
        from mltta.cli.settings import settings_of

        (settings,) = settings_of([options.method], options.set, options.settings).values()
    how = groups.asked(options) | options.chosen(
        "preset", "threshold", "top_k", "keywords_from", "language", "allow_urls"
    )
    how["where"] = options.where is not None
    labels = groups.with_synonyms(
        keywords_of(options) if options.labels == FROM_PHOTOS else options.labels, options
    )
    return Tagger(
        groups.open_backbone(options, methods=[options.method]), labels, options.method, **how, **settings
    )


def keywords_of(options: TagOptions) -> LabelSet:
    """Return the keywords in the photos and their sidecars as labels."""
    from mltta.cli.inputs import Sources
    from mltta.labels import LabelSet
    from mltta.output.keywords.write import users_keywords
    from mltta.storage.reading import unwritable

    files = [file for file in Sources(options.images, options.allow_urls).find() if isinstance(file, Path)]
    words = dict.fromkeys(word for file in files for word in users_keywords(file))
    found = [word for word in words if word.rpartition("|")[2].strip() and not unwritable(word)]
    if not found:
        raise ConfigError(
            f"--labels {FROM_PHOTOS}: the {len(files):,} photos contain no keywords; give labels"
        )
    entries: Any = [{"name": word.rpartition("|")[2], "title": word} for word in found]
    return LabelSet.of(entries)
