"""AP and mAP, for all images or by number of labels, and AP of bootstrap samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ties = Literal["grouped", "released"]
Absent = Literal["zero", "skip"]

#: (min, max) labels per image, both inclusive; None for no limit
LABEL_BINS: Mapping[str, tuple[int, int | None]]
LABEL_BINS = {"1-2": (1, 2), "3-4": (3, 4), "5-7": (5, 7), "8+": (8, None)}


def columns(values: ArrayLike, targets: ArrayLike) -> Iterator[tuple[Array, Array]]:
    """Yield each label's values and targets (N,), validated; only one label is copied at a time."""
    value, target = np.asarray(values), np.asarray(targets)
    if value.shape != target.shape or value.ndim != 2 or not value.size:
        said = f"scores {value.shape} and targets {target.shape} must have the same shape (N, C), not empty"
        raise ValueError(said)
    for c in range(value.shape[1]):
        column, truth = np.ascontiguousarray(value[:, c]), np.ascontiguousarray(target[:, c])
        if bad := int(np.count_nonzero(~np.isfinite(column))):
            said = f"{bad} scores of label {c} (counted from 0) are NaN or infinite"
            raise ValueError(said)
        if not ((truth == 1) | (truth == 0) | (truth == -1)).all():
            said = f"targets of label {c} (counted from 0) must be 1 (present), 0 (absent) or -1 (ignored)"
            raise ValueError(said)
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
    """One label's P positives among its images; ties get the rank of the last of them."""

    order: NDArray[np.int32]  # images by descending score, up to the last positive
    positive: NDArray[np.int32]  # (P,) images with the label, in that order
    rank: NDArray[np.int32]  # (P,) number of images ranked at or above the positive
    found: NDArray[np.int32]  # (P,) number of positives among them

    @classmethod
    def of(cls, score: Array, target: Array) -> Ranked:
        """Rank a label with at least one positive; images with target -1 are ignored."""
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
        """AP of D bootstrap samples with copies (D, N) of the images; NaN for a sample without positives."""
        # a copy is ranked among the other images, not its own copies, which would inflate the AP of rare labels
        ends, which = np.unique(self.rank, return_inverse=True)
        starts = np.append(0, ends[:-1])
        ordered = copies.take(self.order, axis=1)
        above = np.add.reduceat(ordered, starts, axis=1, dtype=np.int32).cumsum(axis=1)
        own = copies.take(self.positive, axis=1).astype(np.int32)  # (D, P)
        hits = own.cumsum(axis=1).take(self.found - 1, axis=1)
        precision = (hits - own + 1) / (above.take(which, axis=1) - own + 1)
        with np.errstate(invalid="ignore"):
            return np.asarray((precision * own).sum(axis=1) / own.sum(axis=1))


def ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """part / whole, and 0 if whole is 0."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))


def average_precision(scores: ArrayLike, targets: ArrayLike, ties: Ties = "grouped") -> Floats:
    """AP of each label, 0 to 1: mean precision at the ranks of the positives.

    Args:
        scores: (N, C), finite.
        targets: (N, C) of 1, 0 and -1.
        ties: "grouped" gives equal scores one shared rank, as in scikit-learn, independent of image order;
            "released" ranks them in the order left by NumPy's sort.

    Returns:
        (C,) with 0 for a label without positives, as in the released code.

    >>> average_precision([[0.9], [0.8], [0.3], [0.1]], [[1], [0], [1], [-1]]).round(3).tolist()
    [0.833]
    """
    return np.array([label_ap(score, target, ties) for score, target in columns(scores, targets)])


def mean_average_precision(
    scores: ArrayLike, targets: ArrayLike, ties: Ties = "grouped", absent: Absent = "zero"
) -> float:
    """mAP in percent.

    A label without positives counts as 0 with absent="zero", as in the released code and scikit-learn, and is
    excluded from the mean with "skip". NaN if no label is left.
    """
    labels = columns(scores, targets)
    return _mean([label_ap(*own, ties) for own in labels if absent == "zero" or (own[1] == 1).any()])


def _mean(ap: list[float]) -> float:
    return float(100 * np.mean(ap)) if ap else float("nan")


@dataclass(frozen=True)
class CountBin:
    """The images with a given number of labels."""

    images: int
    labels: int  # labels with at least one positive in the images
    mean_ap: float  # over those labels, in percent; NaN if there are none


def rows_by_count(
    targets: ArrayLike, bins: Mapping[str, tuple[int, int | None]] = LABEL_BINS
) -> dict[str, NDArray[np.intp]]:
    """The images of each bin of label counts, by their rows."""
    count = (np.asarray(targets) == 1).sum(axis=1)
    ranges = ((name, least, np.inf if most is None else most) for name, (least, most) in bins.items())
    return {name: np.flatnonzero((count >= least) & (count <= most)) for name, least, most in ranges}


def by_label_count(
    scores: ArrayLike,
    targets: ArrayLike,
    bins: Mapping[str, tuple[int, int | None]] = LABEL_BINS,
    ties: Ties = "grouped",
) -> dict[str, CountBin]:
    """mAP by number of labels per image; ``bins`` maps names to ranges, as in `LABEL_BINS`."""
    rows = rows_by_count(targets, bins)
    ap: dict[str, list[float]] = {name: [] for name in bins}
    for score, target in columns(scores, targets):
        for name, row in rows.items():
            if (target[row] == 1).any():
                ap[name].append(label_ap(score[row], target[row], ties))
    return {name: CountBin(len(row), len(ap[name]), _mean(ap[name])) for name, row in rows.items()}
