"""Near duplicates: resized, recompressed, recolored or slightly cropped copies of a photo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from mltta.library.index import File, Library

#: cosine similarity from which two photos count as copies; `python -m benchmarks.library duplicates` measures it
ALIKE = 0.97
BLOCK = 1024  # rows that are compared with all others at a time


def pairs(vectors: NDArray[np.float16], least: float) -> Iterator[tuple[int, int, float]]:
    """Pairs of rows (N, D) whose cosine similarity is at least this, with it; the first row is the smaller one."""
    for start in range(0, len(vectors), BLOCK):
        some = vectors[start : start + BLOCK].astype(np.float32)
        for other in range(start, len(vectors), BLOCK):
            alike = some @ vectors[other : other + BLOCK].astype(np.float32).T
            for i, j in zip(*np.nonzero(alike >= least), strict=True):
                if start + i < other + j:
                    yield int(start + i), int(other + j), float(alike[i, j])


def groups(found: Iterable[tuple[int, int, float]]) -> list[list[int]]:
    """Rows that are connected by pairs, in order; rows without a pair are left out."""
    group: dict[int, set[int]] = {}
    for i, j, _ in found:
        joined = group.get(i, {i}) | group.get(j, {j})
        group.update(dict.fromkeys(joined, joined))
    return sorted({min(rows): sorted(rows) for rows in group.values()}.values())


def duplicates(library: Library, least: float = ALIKE) -> list[list[File]]:
    """Groups of files that show the same photo, the largest file first; exact copies included."""
    files: dict[int, list[File]] = {}
    for file in (one for one in library.files() if not one.error):
        files.setdefault(file.photo, []).append(file)
    photos = sorted(files)
    rows = library.vectors()[[photo - 1 for photo in photos]]
    linked = groups(pairs(rows, least))
    together = {row for group in linked for row in group}
    alone = [[row] for row in range(len(rows)) if row not in together and len(files[photos[row]]) > 1]
    found = [[file for row in group for file in files[photos[row]]] for group in (*linked, *alone)]
    return [sorted(group, key=lambda file: (-file.stamp[0], str(file.path))) for group in found]
