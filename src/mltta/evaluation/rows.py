"""How what a method says of one image lies on disk: a line of JSON, and a row of scores if it has any.

A row counts once its line is written, and a line only as far as its row is there: whatever a kill cuts off, what is
left is a whole beginning. Each line ends with a checksum of itself and of its row, so that damage is told from a kill.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mltta.session.scorer import Scored
from mltta.storage.journal import SealedLine, read_lines, sealed_line
from mltta.storage.reading import UNREADABLE


def row_of(scored: Scored) -> bytes:
    """The scores of the branches, then those of the decision; nothing if there are none."""
    rows = [part for part in (scored.branches, scored.scores) if part is not None]
    return b"".join(np.ascontiguousarray(row, np.float32).tobytes() for row in rows)


def line_of(scored: Scored, row: bytes = b"") -> bytes:
    """Everything but the scores, sealed with them."""
    held: dict[str, Any] = {"index": scored.photo.index, "id": scored.photo.id}
    if scored.shown is None:
        held["error"] = scored.error
    else:
        held |= {"present": np.flatnonzero(scored.shown).tolist(), "ms": round(scored.ms, 3)}
    return sealed_line(held, row)


class Outcomes:
    """The whole records of a result, read once: as arrays, without their text."""

    def __init__(self, images: int):
        #: records, those with scores, and the bytes of their lines
        self.count = self.rows = self.size = 0
        #: by image, its row of scores, or -1
        self.row_of = np.full(images, -1, np.int64)
        #: by image, its id and why it has no scores
        self.failed: dict[int, tuple[str, str]] = {}
        self.ms = 0.0
        #: whether the record after these is damaged, and whether whole ones follow it
        self.damaged = self.goes_on = False
        self._present, self._counts = array("i"), array("i")

    @classmethod
    def read(
        cls,
        records: IO[bytes],
        scores: IO[bytes],
        shape: tuple[int, int],
        images: int,
        at_most: int | None = None,
    ) -> Outcomes:
        """Read every line, compared with its checksum and its row of scores.

        Args:
            images: of the dataset; a record of any other is damage.
        """
        found, lines = cls(images), _read(records, scores, shape, images)
        for line in lines:
            if line.held is None:
                found.damaged = not line.cut_off
                found.goes_on = found.damaged and any(other.held is not None for other in lines)
                break
            if found.count == at_most:
                break
            index = line.held["index"]
            if "error" in line.held:
                found.failed[index] = line.held["id"], line.held["error"]
            else:
                found.failed.pop(index, None)  # it failed in an earlier call
                found.row_of[index] = found.rows
                found._present.extend(line.held["present"])
                found._counts.append(len(line.held["present"]))
                found.rows, found.ms = found.rows + 1, found.ms + line.held["ms"]
            found.count, found.size = found.count + 1, found.size + line.size
        return found

    def present(self, labels: int) -> NDArray[np.bool_]:
        """Which labels each row shows (rows, labels)."""
        hot = np.zeros((self.rows, labels), bool)
        hot[np.repeat(np.arange(self.rows), self._counts), np.asarray(self._present)] = True
        return hot


def row_bytes(shape: tuple[int, int]) -> int:
    """Bytes of one image's scores (branches, C), and of those of the decision (C,)."""
    return 4 * (shape[0] + 1) * shape[1]


def _read(records: IO[bytes], scores: IO[bytes], shape: tuple[int, int], images: int) -> Iterator[SealedLine]:
    size, sound = row_bytes(shape), False
    rows = os.fstat(scores.fileno()).st_size // size
    records.seek(0)
    scores.seek(0)

    def beside(held: dict[str, Any]) -> bytes | None:
        nonlocal rows, sound
        sound = _makes_sense(held, shape[1], images)
        if "error" in held or not sound:
            return b""
        if not rows:
            return None
        rows -= 1
        return scores.read(size)

    for line in read_lines(records, beside):
        yield line if sound else replace(line, held=None)


def _makes_sense(held: dict[str, Any], labels: int, images: int) -> bool:
    try:
        known = isinstance(held["id"], str) and isinstance(held["index"], int) and 0 <= held["index"] < images
        if "error" in held:
            return known and isinstance(held["error"], str)
        labelled = all(isinstance(label, int) and 0 <= label < labels for label in held["present"])
        return bool(known and labelled and 0 <= held["ms"] < float("inf"))
    except UNREADABLE:
        return False
