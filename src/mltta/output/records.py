"""One image's answer in plain data, as ``Tags.record()`` gives it: what formats and the journal are written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: "image", and either "error" or "present" and "labels"; for a gallery also "thumbnail" and "where"
Record = dict[str, Any]
#: the columns of a table, by whether it has one row per image
COLUMNS = {
    False: ("image", "label", "score", "present", "error"),
    True: ("image", "present", "labels", "scores", "error"),
}


@dataclass(frozen=True)
class Page:
    """What a whole file is written with besides the records: its own place, how many there are, all labels."""

    path: Path
    count: int
    labels: Sequence[str]
    wide: bool = False


def table_rows(record: Record, wide: bool) -> list[tuple[Any, ...]]:
    """One row per label shown, or one per image; None is an empty cell. Every image has at least one row."""
    image, error = printable(record["image"]), record.get("error")
    if error is not None:
        return [(image, None, None, None, printable(error))]
    items, present = record["labels"], record["present"]
    if wide:
        return [(image, present, [one["label"] for one in items], [one["score"] for one in items], None)]
    rows: list[tuple[Any, ...]] = [
        (image, one["label"], one["score"], one["label"] in present, None) for one in items
    ]
    return rows or [(image, None, None, None, None)]


def plain(record: Record) -> Record:
    """A record without what only a gallery shows."""
    return {name: value for name, value in record.items() if name in ("image", "error", "present", "labels")}


def printable(text: str) -> str:
    """Text that any file takes: bytes of a path that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
