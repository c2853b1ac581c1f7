"""One image's outcome, and how it lies on disk: a line of JSON, and a row of scores if it has any.

A row counts once its line is written, and a line only as far as its row is there: whatever a kill cuts off, what is
left is a whole beginning. Each line ends with a checksum of itself and of its row, so that damage is told from a kill.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mltta.storage import journal
from mltta.storage.journal import SealedLine, sealed_line
from mltta.storage.reading import UNREADABLE


@dataclass(frozen=True)
class Record:
    """One image's outcome: scores of each branch (branches, C) and what was shown of them (C,), or an error."""

    index: int
    id: str
    scores: NDArray[np.float32] | None = None
    shown: NDArray[np.float32] | None = None
    present: Sequence[int] = ()
    ms: float = 0.0
    error: str | None = None


def to_row(record: Record) -> bytes:
    """The scores, those shown behind those of the branches."""
    rows = [part for part in (record.scores, record.shown) if part is not None]
    return b"".join(np.ascontiguousarray(row, np.float32).tobytes() for row in rows)


def to_line(record: Record, row: bytes = b"") -> bytes:
    """The record without its scores, sealed with them."""
    held: dict[str, Any] = {"index": record.index, "id": record.id}
    if record.scores is None:
        held["error"] = record.error
    else:
        held |= {"present": list(record.present), "ms": round(record.ms, 3)}
    return sealed_line(held, row)


def read_lines(
    records: IO[bytes], scores: IO[bytes], shape: tuple[int, int], images: int, sealed: bool = True
) -> Iterator[SealedLine]:
    """Every line of a result, compared with its checksum and its row of scores.

    Args:
        images: of the dataset; a record of any other is none.
        sealed: whether lines have checksums.
    """
    size = row_bytes(shape)
    rows = os.fstat(scores.fileno()).st_size // size
    scores.seek(0)

    def row_of(held: dict[str, Any]) -> bytes | None:
        nonlocal rows
        if "error" in held or not _makes_sense(held, shape[1], images):
            return b""
        if not rows:
            return None
        rows -= 1
        return scores.read(size) if sealed else b""

    for line in journal.read_lines(records, row_of, sealed):
        known = line.held is not None and _makes_sense(line.held, shape[1], images)
        yield line if known else replace(line, held=None)


def row_bytes(shape: tuple[int, int]) -> int:
    """Bytes of one image's scores (branches, C), and of those shown (C,)."""
    return 4 * (shape[0] + 1) * shape[1]


def _makes_sense(held: dict[str, Any], labels: int, images: int) -> bool:
    try:
        known = isinstance(held["id"], str) and isinstance(held["index"], int) and 0 <= held["index"] < images
        if "error" in held:
            return known and isinstance(held["error"], str)
        labelled = all(isinstance(label, int) and 0 <= label < labels for label in held["present"])
        return bool(known and labelled and 0 <= held["ms"] < float("inf"))
    except UNREADABLE:
        return False
