"""Benchmark datasets in the layouts people have on disk: image paths, labels, ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltta.labels import LabelSet


@dataclass(frozen=True)
class Dataset:
    """Images of a benchmark with their labels: 1 present, 0 only difficult instances, -1 absent."""

    name: str
    labels: LabelSet
    ids: tuple[str, ...]
    paths: tuple[Path, ...]
    targets: NDArray[np.int8]  # (N, C)

    def __len__(self) -> int:
        return len(self.ids)
