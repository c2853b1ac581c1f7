"""Which formats tags are written in, and how a file's name says which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from mltta.errors import ConfigError
from mltta.output.lines import TextFormat, csv_lines, json_lines, jsonl_lines, table_lines
from mltta.output.records import Page, Record

SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".html": "html",
    ".htm": "html",
    ".txt": "table",
}
#: formats with rows, which can be one per image
WIDE = {"csv", "parquet"}

#: writes all records at once, to a path that is then put in the file's place
Whole: TypeAlias = Callable[[Path, Iterable[Record], Page], None]


def format_of(given: str | None, output: Path | None) -> str:
    """The format that was asked for, or the one that the file's suffix says."""
    if given is not None or output is None:
        return given or "table"
    suffix = output.suffix.lower()
    if suffix not in SUFFIXES and suffix:
        known = ", ".join(SUFFIXES)
        raise ConfigError(f"{output}: unknown format {suffix}. Use {known}, or give a format with --format")
    return SUFFIXES.get(suffix, "table")


def file_of(format: str, output: Path) -> Path:
    """The file that is written: FiftyOne imports a folder, in which it looks for labels.json."""
    return output / "labels.json" if format == "fiftyone" and output.suffix.lower() != ".json" else output


def text_format(format: str, wide: bool = False) -> TextFormat | None:
    """How a format's file is written image by image; None where that cannot be."""
    if format == "csv":
        return csv_lines(wide)
    made = {"json": json_lines, "jsonl": jsonl_lines, "table": table_lines}.get(format)
    return None if made is None else made()


def write_tags(part: Path, format: str, records: Iterable[Record], page: Page) -> None:
    """Write a whole file in a format."""
    text = text_format(format, page.wide)
    if text is not None:
        text.write(part, records)
    else:
        _whole(format)(part, records, page)


def _whole(format: str) -> Whole:
    """How a format is written that needs all images at once."""
    if format == "parquet":
        from mltta.output.parquet import write_parquet

        return write_parquet
    if format == "html":
        from mltta.output.gallery import write_gallery

        return write_gallery
    from mltta.output.exchange import write_coco, write_fiftyone

    return {"coco": write_coco, "fiftyone": write_fiftyone}[format]


def refuse_wide(formats: Iterable[str]) -> None:
    """Refuse ``--wide`` for formats without rows."""
    if not WIDE.intersection(formats):
        raise ConfigError("--wide is for csv and parquet: other formats have one entry per image anyway")
