"""Commands on libraries: `mltta export`, `search`, `similar`, `duplicates` and `teach`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import typer

from mltta.cli import groups
from mltta.cli.options import Options, argument, option
from mltta.cli.tag import FileOptions, OutputOptions, ShownOptions


class ExportOptions(ShownOptions, OutputOptions, FileOptions, groups.AnswerOptions, groups.RunOptions):
    """Write tags in another format, with another threshold or other labels, without tagging again.

    - `mltta export holidays.mltta -o tags.csv -o tags.html --threshold 0.6`
    - `mltta export holidays.mltta --labels other.txt -o tags.csv`
    - `mltta export tags.csv -o tags.parquet`

    Other labels and lower thresholds need a library. It computes their scores from stored features, not from photos.
    """

    sources: tuple[str, ...] = argument(
        "SOURCE…", "A library, an output of `mltta tag`, or folders of --ray."
    )
    labels: str | Any = option(None, "Label list (default: the one that was used last).", "-l")
    method: str = option("auto", "Method name, as in `mltta tag`.")
    overwrite: bool = option(False, "Replace existing files.", panel="Output")


def export(options: ExportOptions) -> None:
    from mltta.cli.exporting import export_here

    raise typer.Exit(export_here(options))


class FoundOptions(Options, panel="Output"):
    format: Literal["table", "paths", "json"] = option("table", "table, paths (one per line), or json.", "-f")
    output: Path | None = option(None, "Write a gallery of the photos found.", "-o", metavar="FILE.html")


class ListedOptions(FoundOptions):
    count: int = option(20, "Maximum number of photos.", "-n", min=1)


class SearchOptions(ListedOptions, groups.ModelOptions):
    """Find photos in a library by a text, by labels, by date or by folder.

    - `mltta search holidays.mltta "a dog on a beach"`
    - `mltta search holidays.mltta --has "dog and (beach or sea) not person"`
    - `mltta search holidays.mltta "sunset" --since 2024-06 --until 2024-08 -o found.html`

    Photos are sorted by similarity with the text, else by the score of the labels, else by date.
    """

    library: Path = argument("LIBRARY", "A library made by `mltta tag --library`.")
    text: str = argument("TEXT", "A description of the photos.", "")
    has: str = option("", "Labels with and, or, not and parentheses.", metavar="QUERY")
    threshold: float | None = option(None, "Minimum score in --has (default: 0.3).", metavar="SCORE")
    since: str = option("", "Photos taken on or after this date.", metavar="YYYY[-MM[-DD]]")
    until: str = option("", "Photos taken on or before this date.", metavar="YYYY[-MM[-DD]]")
    folder: Path | None = option(None, "Photos in this folder.", metavar="DIR")


class SimilarOptions(ListedOptions, groups.ModelOptions):
    """Find the photos in a library that are most similar to a photo, which need not be in the library."""

    library: Path = argument("LIBRARY", "A library made by `mltta tag --library`.")
    photo: Path = argument("PHOTO", "The photo to compare with.")


class DuplicatesOptions(FoundOptions):
    """List near duplicates in a library: resized, recompressed, recolored or slightly cropped copies.

    Each group starts with its largest file. Nothing is ever deleted.
    """

    library: Path = argument("LIBRARY", "A library made by `mltta tag --library`.")
    similarity: float | None = option(None, "Minimum cosine similarity (default: 0.97).", metavar="X")


def search(options: SearchOptions) -> None:
    from mltta.cli import found

    found.search(options)


def similar(options: SimilarOptions) -> None:
    from mltta.cli import found

    found.similar(options)


def duplicates(options: DuplicatesOptions) -> None:
    from mltta.cli import found

    found.duplicates(options)


class TeachOptions(groups.AnswerOptions, groups.RunOptions):
    """Teach a library labels by examples, 1 to 16 photos per label, and write a file for --labels.

    - `mltta teach holidays.mltta --label "our dog" yes/*.jpg --not no/*.jpg -o mine.mltta`
    - `mltta teach holidays.mltta --corrections corrected.csv -o mine.mltta`
    - `mltta export holidays.mltta --labels mine.mltta -o tags.csv`

    All examples are kept in the library, and each run learns from all of them. Tagging never changes what was taught.
    """

    library: Path = argument("LIBRARY", "A library made by `mltta tag --library`.")
    photos: tuple[str, ...] = argument("PHOTO…", "Photos that show the label.", ())
    label: str = option("", "The label to teach. It may be new.")
    not_: tuple[str, ...] = option((), "Photos that do not show the label.", metavar="PHOTO…")
    corrections: Path | None = option(None, "CSV: photo, label, answer (yes or no).", metavar="FILE")
    forget: tuple[str, ...] = option((), "Forget all examples of a label. Repeatable.", metavar="LABEL")
    output: Path = option(Path("mine.mltta"), "File to write.", "-o")
    labels: str | Any = option(None, "Label list to add to (default: the one used last).", "-l")
    method: str = option("auto", "Method name, as in `mltta tag`.")
    quiet: bool = option(False, "Hide the summary.", "-q")


def teach(options: TeachOptions) -> None:
    from mltta.cli.teaching_run import teach_here

    teach_here(options)
