"""One image's answer in plain data: what every format is written from, and what is kept until it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: "image", and either "error" or "present" and "labels"; for a gallery also "thumbnail" and "where"
Record = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """What a whole file is written with besides the records: its own place, how many there are, all labels."""

    path: Path
    count: int
    labels: Sequence[str]
    wide: bool = False


def plain(record: Record) -> Record:
    """A record without what only a gallery shows."""
    return {name: value for name, value in record.items() if name in ("image", "error", "present", "labels")}


def printable(text: str) -> str:
    """Text that any file takes: bytes of a path that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
