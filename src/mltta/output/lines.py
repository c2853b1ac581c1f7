"""Formats that are written image by image: a table for people, CSV, JSON and JSON Lines for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mltta.output.records import Record, plain, printable

_LONG = ["image", "label", "score", "present", "error"]
_WIDE = ["image", "present", "labels", "scores", "error"]


@dataclass(frozen=True)
class Lines:
    """A text format: what stands before all images, for each, between them and behind them."""

    text: Callable[[Record], str]
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
            yield (self.between if number else "") + self.text(record)
        yield self.tail


def csv_lines(wide: bool = False, end: str = "\r\n") -> Lines:
    """One row a label, or one row an image; a screen makes the system's own line ends out of "\\n"."""

    def rows(cells: Iterable[Iterable[object]]) -> str:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator=end).writerows(cells)
        return printable(text.getvalue())

    return Lines(lambda record: rows((_wide if wide else _long)(record)), rows([_WIDE if wide else _LONG]))


def _long(record: Record) -> Iterator[list[object]]:
    image = record["image"]
    if "error" in record:
        yield [image, "", "", "", record["error"]]
        return
    if not record["labels"]:  # an image that shows none of the labels is an answer too
        yield [image, "", "", "", ""]
    for item in record["labels"]:
        yield [image, item["label"], f"{item['score']:.6f}", int(item["label"] in record["present"]), ""]


def _wide(record: Record) -> Iterator[list[object]]:
    if "error" in record:
        yield [record["image"], "", "", "", record["error"]]
        return
    labels = "; ".join(item["label"] for item in record["labels"])
    scores = "; ".join(f"{item['score']:.6f}" for item in record["labels"])
    yield [record["image"], "; ".join(record["present"]), labels, scores, ""]


def jsonl_lines() -> Lines:
    """One object a line."""
    return Lines(lambda record: printable(json.dumps(plain(record), ensure_ascii=False)) + "\n")


def json_lines() -> Lines:
    """A list of objects, laid out to be read."""

    def text(record: Record) -> str:
        said = json.dumps(plain(record), ensure_ascii=False, indent=1).replace("\n", "\n ")
        return f"\n {printable(said)}"

    return Lines(text, head="[", between=",", tail="\n]\n")


def table_lines(bar: str = "█", width: int = 100, styled: bool = False) -> Lines:
    """A table for people: score, bar, label.

    Args:
        bar: what bars are made of.
        styled: with the marks of a terminal.
    """

    def text(record: Record) -> str:
        if "error" in record:  # listed together at the end, where they are not overlooked
            return ""
        from rich.console import Console
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
            style = "bold" if item["label"] in record["present"] else "dim"
            length = bar * round(20 * item["score"])
            table.add_row(f"{item['score']:.2f}", length, _unmarked(item["label"]), style=style)
        console.print(table)
        return page.getvalue()

    return Lines(text)


def _unmarked(label: str) -> str:
    """A label whose brackets are no markup."""
    from rich.markup import escape

    return escape(printable(label))
