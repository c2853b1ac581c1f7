"""Storage format of one image's result: a JSON line, and a row of scores if there are any.

A row counts only if its line is complete, and a line only if its row is there, so a kill always leaves a valid prefix.
Each line ends with a checksum of itself and its row, which distinguishes damage from a kill.
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
    """Scores of the branches, then of the decision; empty if there are none."""
    rows = [part for part in (scored.branches, scored.scores) if part is not None]
    return b"".join(np.ascontiguousarray(row, np.float32).tobytes() for row in rows)


def line_of(scored: Scored, row: bytes = b"") -> bytes:
    """All fields except scores, with a checksum of both."""
    held: dict[str, Any] = {"index": scored.photo.index, "id": scored.photo.id}
    if scored.shown is None:
        held["error"] = scored.error
    else:
        held |= {"present": np.flatnonzero(scored.shown).tolist(), "ms": round(scored.ms, 3)}
    return sealed_line(held, row)


class Outcomes:
    """The complete records of a result, read once into arrays."""

    def __init__(self, images: int):
        #: number of records, of records with scores, and bytes of their lines
        self.count = self.rows = self.size = 0
        #: by image: index of its row of scores, or -1
        self.row_of = np.full(images, -1, np.int64)
        #: by image: its id and error
        self.failed: dict[int, tuple[str, str]] = {}
        self.ms = 0.0
        #: whether the next record is damaged, and whether intact ones follow it
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
        """Read every line, and verify it and its row of scores against the checksum.

        Args:
            images: number of images in the dataset; a record with a larger index counts as damaged.
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
        """Mask of labels shown, per row (rows, labels)."""
        hot = np.zeros((self.rows, labels), bool)
        hot[np.repeat(np.arange(self.rows), self._counts), np.asarray(self._present)] = True
        return hot


def row_bytes(shape: tuple[int, int]) -> int:
    """Bytes of one image's branch scores (branches, C) and decision scores (C,)."""
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
