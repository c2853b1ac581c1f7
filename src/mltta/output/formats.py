"""Output formats: records, the format for a file name, and formats that are written image by image.

A record is the result for one image as plain data, from ``Tags.record()``. The journal and all formats consist of them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mltta.errors import ConfigError
from mltta.storage.reading import escaped, no_formula

#: "image"; "error", or "present", "labels" and, if there are none, a "note"; for a gallery "thumbnail" and "where"
Record = dict[str, Any]
#: the columns of a table, by whether it has one row per image
COLUMNS = {
    False: ("image", "label", "score", "present", "error"),
    True: ("image", "present", "labels", "scores", "error"),
}
SUFFIXES = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
SUFFIXES |= {".pq": "parquet", ".html": "html", ".htm": "html", ".txt": "table"}
NONE_SHOWN = "No label scored high enough"
#: formats that can have one row per image
WIDE = {"csv", "csv-raw", "parquet"}


@dataclass(frozen=True)
class Page:
    """What a file contains besides its records: path, number of records, labels, synonyms as "a | b"."""

    path: Path
    count: int
    labels: Sequence[str]
    wide: bool = False
    synonyms: Sequence[str] = ()


@dataclass(frozen=True)
class TextFormat:
    """A text format: head, entry per image, separator and tail."""

    entry: Callable[[Record], str]
    head: str = ""
    between: str = ""
    tail: str = ""

    @property
    def grows(self) -> bool:
        """Whether the file is valid after every image, so that it can be read while it grows."""
        return not self.tail

    def pieces(self, records: Iterable[Record]) -> Iterator[str]:
        """Yield the text in pieces."""
        yield self.head
        for number, record in enumerate(records):
            yield (self.between if number else "") + self.entry(record)
        yield self.tail


def format_of(given: str | None, output: Path | None) -> str:
    """Return the given format, or the one of the file extension."""
    if given is not None or output is None:
        return given or "table"
    suffix = output.suffix.lower()
    if suffix not in SUFFIXES and suffix:
        known = ", ".join(SUFFIXES)
        raise ConfigError(f"{output}: unknown format {suffix}. Use {known}, or give a format with --format")
    return SUFFIXES.get(suffix, "table")


def file_of(format: str, output: Path) -> Path:
    """Return the file to write; FiftyOne imports a folder that contains labels.json."""
    return output / "labels.json" if format == "fiftyone" and output.suffix.lower() != ".json" else output


def refuse_wide(formats: Iterable[str]) -> None:
    """Refuse ``--wide`` for formats without rows."""
    if not WIDE.intersection(formats):
        raise ConfigError("--wide needs csv or parquet; other formats always have one entry per image")


def text_format(format: str, wide: bool = False) -> TextFormat | None:
    """Return how to write a format image by image; None if it cannot be."""
    if format in ("csv", "csv-raw"):
        return csv_lines(wide, raw=format == "csv-raw")
    if format == "json":  # one indented list
        return TextFormat(partial(_json, indent=1), head="[", between=",", tail="\n]\n")
    if format == "jsonl":
        return TextFormat(lambda record: _json(record) + "\n")
    return table_lines() if format == "table" else None


def csv_lines(wide: bool = False, end: str = "\r\n", raw: bool = False) -> TextFormat:
    """Rows per label or per image; a terminal converts "\\n" to line ends. ``raw`` keeps what would be formulas."""
    cell = partial(_cell, raw=raw)

    def text(rows: Iterable[Iterable[Any]]) -> str:
        held = io.StringIO(newline="")
        csv.writer(held, lineterminator=end).writerows(map(cell, row) for row in rows)
        return printable(held.getvalue())

    return TextFormat(lambda record: text(table_rows(record, wide)), text([COLUMNS[wide]]))


def table_rows(record: Record, wide: bool) -> list[tuple[Any, ...]]:
    """Return one row per label shown, or one per image, at least one; None is an empty cell."""
    image, error = printable(record["image"]), record.get("error")
    if error is not None:
        return [(image, None, None, None, printable(error))]
    items, present = record["labels"], record["present"]
    if wide:
        return [(image, present, [one["label"] for one in items], [one["score"] for one in items], None)]
    rows: list[tuple[Any, ...]]
    rows = [(image, one["label"], one["score"], one["label"] in present, None) for one in items]
    return rows or [(image, None, None, None, None)]


def _cell(value: Any, raw: bool = False) -> str:
    if isinstance(value, list):
        return "; ".join(_cell(one, raw) for one in value)
    if isinstance(value, str):
        return value if raw else no_formula(value)
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def _json(record: Record, indent: int | None = None) -> str:
    """Return a record as JSON without gallery data; an indented one starts with a line break."""
    held = {name: value for name, value in record.items() if name in ("image", "error", "present", "labels")}
    said = printable(json.dumps(held, ensure_ascii=False, indent=indent))
    return said if indent is None else "\n " + said.replace("\n", "\n ")


def table_lines(bar: str = "█", width: int = 100, styled: bool = False) -> TextFormat:
    """A readable table of scores, bars of the character ``bar`` and labels; ``styled`` for terminals."""

    def text(record: Record) -> str:
        if "error" in record:  # errors are listed at the end
            return ""
        from rich.console import Console
        from rich.markup import escape  # brackets in labels are not markup
        from rich.table import Table

        page = io.StringIO()
        marks: Any = "standard" if styled else None
        console = Console(file=page, highlight=False, width=width, force_terminal=styled, color_system=marks)
        console.print(escaped(record["image"]), style="bold", markup=False, soft_wrap=True)
        if not record["labels"]:
            note = "  " + escaped(record.get("note", NONE_SHOWN))
            console.print(note, style="dim", markup=False, soft_wrap=True)
            return page.getvalue()
        table = Table(box=None, show_header=False, padding=(0, 1))
        for item in record["labels"]:
            length = bar * round(20 * item["score"])
            table.add_row(f"{item['score']:.2f}", length, escape(escaped(item["label"])), style="bold")
        console.print(table)
        return page.getvalue()

    return TextFormat(text)


def printable(text: str) -> str:
    """Escape bytes of a path that are not UTF-8, so that any file can contain the text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
