"""One image's outcome, and how it lies on disk: a line of JSON, and a row of scores if it has any.

A row counts once its line is written, and a line only as far as its row is there: whatever a kill cuts off, what is
left is a whole beginning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


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


def to_line(record: Record) -> bytes:
    """The record without its scores."""
    held: dict[str, Any] = {"index": record.index, "id": record.id}
    held |= (
        {"error": record.error}
        if record.scores is None
        else {"present": list(record.present), "ms": round(record.ms, 3)}
    )
    # a path that is not UTF-8 holds surrogates, which JSON can only escape
    return (json.dumps(held, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def whole_records(
    records: IO[bytes], scores: IO[bytes], shape: tuple[int, int]
) -> Iterator[tuple[dict[str, Any], int]]:
    """Records, and their bytes, up to the first that a kill cut off or whose scores are not there."""
    rows = os.fstat(scores.fileno()).st_size // row_bytes(shape)
    for line in records:
        record = _parse(line)
        if record is None or (record.get("error") is None and not rows):
            return
        rows -= record.get("error") is None
        yield record, len(line)


def row_bytes(shape: tuple[int, int]) -> int:
    """Bytes of one image's scores (branches, C), and of those shown (C,)."""
    return 4 * (shape[0] + 1) * shape[1]


def _parse(line: bytes) -> dict[str, Any] | None:
    """A whole record, or None for a line that a kill cut off."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "index" in record and "id" in record else None
