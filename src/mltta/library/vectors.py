"""One vector per photo in a memory-mapped file, and exact nearest neighbours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 65_536  # rows that are compared at a time, about 100 MB


def photo_vector(first: Sequence[NDArray[np.float16]]) -> NDArray[np.float16]:
    """The vector (D,) of a photo: the mean of the first view of each spec, which shows the whole photo."""
    total = np.sum([row.astype(np.float32) for row in first], axis=0)
    return np.asarray(total / max(float(np.linalg.norm(total)), 1e-6), np.float16)


def put(path: Path, vectors: Mapping[int, NDArray[np.float16]]) -> None:
    """Write the vectors of photos by number, from 1, and sync them to disk."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        for photo, row in vectors.items():
            file.seek((photo - 1) * row.nbytes)
            file.write(row.astype("<f2").tobytes())
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, count: int, dim: int) -> NDArray[np.float16]:
    """The vectors (N, D) of the first photos, memory-mapped; rows beyond them do not count."""
    return np.memmap(path, "<f2", "r", shape=(count, dim)) if count else np.empty((0, dim), np.float16)


def similarities(vectors: NDArray[np.float16], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine similarity (N, Q) of all vectors (N, D) with some queries (Q, D)."""
    found = np.empty((len(vectors), len(query)), np.float32)
    for start in range(0, len(vectors), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        found[part] = vectors[part].astype(np.float32) @ query.T
    return found


def best(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Indices of the highest scores (N,), best first; equal scores keep their order."""
    least = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    some = np.flatnonzero(scores >= least)
    return np.asarray(some[np.argsort(-scores[some], kind="stable")][:count])
