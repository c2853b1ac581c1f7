"""Formats that are written image by image: a table for people, CSV, JSON and JSON Lines for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltta.output.records import COLUMNS, Record, plain, printable, table_rows


@dataclass(frozen=True)
class TextFormat:
    """A text format: what stands before all images, for each, between them and behind them."""

    entry: Callable[[Record], str]
    head: str = ""
    between: str = ""
    tail: str = ""

    @property
    def grows(self) -> bool:
        """Whether a file of it is whole after every image, so that it can be read while it grows."""
        return not self.tail

    def pieces(self, records: Iterable[Record]) -> Iterator[str]:
        """The whole text, a piece at a time."""
        yield self.head
        for number, record in enumerate(records):
            yield (self.between if number else "") + self.entry(record)
        yield self.tail

    def write(self, part: Path, records: Iterable[Record]) -> None:
        """Write the whole text to a file."""
        with part.open("wb") as file:
            for piece in self.pieces(records):
                file.write(piece.encode())


def csv_lines(wide: bool = False, end: str = "\r\n") -> TextFormat:
    """One row per label, or one row per image; a screen makes the system's own line ends out of "\\n"."""

    def text(rows: Iterable[Iterable[Any]]) -> str:
        held = io.StringIO(newline="")
        csv.writer(held, lineterminator=end).writerows(map(_cell, row) for row in rows)
        return printable(held.getvalue())

    return TextFormat(lambda record: text(table_rows(record, wide)), text([COLUMNS[wide]]))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_cell, value))
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def jsonl_lines() -> TextFormat:
    """One object per line."""
    return TextFormat(lambda record: printable(json.dumps(plain(record), ensure_ascii=False)) + "\n")


def json_lines() -> TextFormat:
    """A list of objects, laid out to be read."""

    def text(record: Record) -> str:
        said = json.dumps(plain(record), ensure_ascii=False, indent=1).replace("\n", "\n ")
        return f"\n {printable(said)}"

    return TextFormat(text, head="[", between=",", tail="\n]\n")


def table_lines(bar: str = "█", width: int = 100, styled: bool = False) -> TextFormat:
    """A table for people: score, bar, label.

    Args:
        bar: what bars are made of.
        styled: with the marks of a terminal.
    """

    def text(record: Record) -> str:
        if "error" in record:  # listed together at the end, where they are not overlooked
            return ""
        from rich.console import Console
        from rich.markup import escape  # a label's brackets are not markup
        from rich.table import Table

        page = io.StringIO()
        marks: Any = "standard" if styled else None
        console = Console(file=page, highlight=False, width=width, force_terminal=styled, color_system=marks)
        console.print(printable(record["image"]), style="bold", markup=False, soft_wrap=True)
        if not record["labels"]:
            console.print("  none of the labels", style="dim")
            return page.getvalue()
        table = Table(box=None, show_header=False, padding=(0, 1))
        for item in record["labels"]:
            length = bar * round(20 * item["score"])
            table.add_row(f"{item['score']:.2f}", length, escape(printable(item["label"])), style="bold")
        console.print(table)
        return page.getvalue()

    return TextFormat(text)
