"""One image's outcome, and how it lies on disk: a line of JSON, and a row of scores if it has any.

A row counts once its line is written, and a line only as far as its row is there: whatever a kill cuts off, what is
left is a whole beginning. Each line ends with a checksum of itself and of its row, so that damage is told from a kill.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mltta.storage.reading import UNREADABLE

#: what a line with a checksum ends with
_SEALED = re.compile(rb', "crc32": "([0-9a-f]{8})"\}\n$')


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
    held |= (
        {"error": record.error}
        if record.scores is None
        else {"present": list(record.present), "ms": round(record.ms, 3)}
    )
    # a path that is not UTF-8 holds surrogates, which JSON can only escape
    said = json.dumps(held, ensure_ascii=False).encode(errors="backslashreplace")[:-1]
    return said + b', "crc32": "%08x"}\n' % zlib.crc32(row, zlib.crc32(said))


@dataclass(frozen=True)
class Line:
    """A record as it lies on disk: what it says, or None where it is damaged or cut off."""

    record: dict[str, Any] | None
    size: int
    #: a kill cuts off the end of the last line, or its row; anything else is damage
    cut_off: bool = False


def read_lines(
    records: IO[bytes], scores: IO[bytes], shape: tuple[int, int], images: int, sealed: bool = True
) -> Iterator[Line]:
    """Every line of a result, compared with its checksum and its row of scores.

    Args:
        images: of the dataset; a record of any other is none.
        sealed: whether lines have checksums.
    """
    size = row_bytes(shape)
    rows = os.fstat(scores.fileno()).st_size // size
    scores.seek(0)
    for line in records:
        if not line.endswith(b"\n"):
            yield Line(None, len(line), cut_off=True)
            return
        record = _parse(line, shape[1], images)
        if record is not None and "error" not in record:
            if not rows:
                yield Line(None, len(line), cut_off=True)
                return
            rows -= 1
        row = scores.read(size) if sealed and record is not None and "error" not in record else b""
        yield Line(record if not sealed or _fits(line, row) else None, len(line))


def row_bytes(shape: tuple[int, int]) -> int:
    """Bytes of one image's scores (branches, C), and of those shown (C,)."""
    return 4 * (shape[0] + 1) * shape[1]


def _fits(line: bytes, row: bytes) -> bool:
    """Whether a line's checksum is that of the line and its row."""
    seal = _SEALED.search(line)
    return seal is not None and int(seal[1], 16) == zlib.crc32(row, zlib.crc32(line[: seal.start()]))


def _parse(line: bytes, labels: int, images: int) -> dict[str, Any] | None:
    """A record that makes sense, or None."""
    try:
        held = json.loads(line)
        known = isinstance(held["id"], str) and isinstance(held["index"], int) and 0 <= held["index"] < images
        if "error" in held:
            return held if known and isinstance(held["error"], str) else None
        labelled = all(isinstance(label, int) and 0 <= label < labels for label in held["present"])
        return held if known and labelled and 0 <= held["ms"] < float("inf") else None
    except UNREADABLE:
        return None
