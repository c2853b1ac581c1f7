"""The images in the order of one label's scores: its AP, and its AP when the images are drawn again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ties = Literal["grouped", "released"]


def columns(values: ArrayLike, targets: ArrayLike) -> Iterator[tuple[Array, Array]]:
    """Each label's values and targets (N,), checked; only one label at a time is copied."""
    value, target = np.asarray(values), np.asarray(targets)
    if value.shape != target.shape or value.ndim != 2 or not value.size:
        raise ValueError(
            f"scores {value.shape} and targets {target.shape} must be the same (N, C), not empty"
        )
    for c in range(value.shape[1]):
        column, truth = np.ascontiguousarray(value[:, c]), np.ascontiguousarray(target[:, c])
        if bad := int(np.count_nonzero(~np.isfinite(column))):
            raise ValueError(
                f"{bad} scores of label {c} (counted from 0) are NaN or infinite: they have no rank"
            )
        if not ((truth == 1) | (truth == 0) | (truth == -1)).all():
            raise ValueError(
                f"targets of label {c} (counted from 0) must be 1 present, 0 absent or -1 left out"
            )
        yield column, truth.astype(np.int8, copy=False)


def label_ap(score: Array, target: Array, ties: Ties) -> float:
    """AP of one label; 0 without positives."""
    if ties not in ("grouped", "released"):
        raise ValueError(f'ties must be "grouped" or "released", not {ties!r}')
    if not (target == 1).any():
        return 0.0
    if ties == "grouped":
        return Ranked.of(score, target).average_precision()
    kept = target >= 0
    hits = target[kept][score[kept].argsort()[::-1]] == 1
    rank = np.flatnonzero(hits) + 1
    return float((np.arange(1, len(rank) + 1) / rank).sum() / (len(rank) + 1e-8))


@dataclass(frozen=True)
class Ranked:
    """One label's P positives among its images; equal scores share the rank of the last of them."""

    order: NDArray[np.int32]  # images by descending score, down to the rank of the last positive
    positive: NDArray[np.int32]  # (P,) images that have the label, in that order
    rank: NDArray[np.int32]  # (P,) how many images stand at or above the positive
    found: NDArray[np.int32]  # (P,) how many of those are positives

    @classmethod
    def of(cls, score: Array, target: Array) -> Ranked:
        """Rank a label that has a positive; images with target -1 take no part."""
        kept = np.flatnonzero(target >= 0).astype(np.int32)
        order = kept[score[kept].argsort()[::-1]]
        ordered = score[order]
        ends = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(order))
        place = np.flatnonzero(target[order] == 1)
        rank = ends[np.searchsorted(ends, place, side="right")]
        found = np.searchsorted(place, rank)
        positive = order[place]
        return cls(order[: rank[-1]].copy(), positive, rank.astype(np.int32), found.astype(np.int32))

    def average_precision(self) -> float:
        return float((self.found / self.rank).mean())

    def drawn(self, copies: NDArray[np.uint8]) -> Floats:
        """AP of each of D draws, which hold copies (D, N) of the images; NaN for a draw without positives."""
        # a copy is ranked among the other images, not among its own copies, which would lift rare positives
        ends, which = np.unique(self.rank, return_inverse=True)
        starts = np.append(0, ends[:-1])
        above = np.add.reduceat(copies.take(self.order, axis=1), starts, axis=1, dtype=np.int32).cumsum(
            axis=1
        )
        own = copies.take(self.positive, axis=1).astype(np.int32)  # (D, P)
        hits = own.cumsum(axis=1).take(self.found - 1, axis=1)
        precision = (hits - own + 1) / (above.take(which, axis=1) - own + 1)
        with np.errstate(invalid="ignore"):
            return np.asarray((precision * own).sum(axis=1) / own.sum(axis=1))


def ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """part / whole, and 0 where whole is."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))
