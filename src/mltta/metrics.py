"""Average precision per label and its mean, as the field reports them."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_precision(
    scores: ArrayLike, targets: ArrayLike, ties: Literal["grouped", "released"] = "grouped"
) -> NDArray[np.float64]:
    """AP of each label, 0 to 1: the mean over positives of the precision at their rank.

    Args:
        scores: (N, C) one score per image and label.
        targets: (N, C); only 1 is positive, so 0 and -1 both count as absent.
        ties: "grouped" gives equal scores one shared rank, as scikit-learn does, so that the order of the
            images never matters; "released" ranks them as numpy's sort happens to leave them.

    A label without positives has AP 0, as in the released code.
    """
    score, positive = np.asarray(scores, dtype=np.float64), np.asarray(targets) == 1
    if score.shape != positive.shape or score.ndim != 2:
        raise ValueError(f"scores {score.shape} and targets {positive.shape} must be the same (N, C)")
    return np.array([_ap(score[:, c], positive[:, c], ties) for c in range(score.shape[1])])


def mean_average_precision(
    scores: ArrayLike, targets: ArrayLike, ties: Literal["grouped", "released"] = "grouped"
) -> float:
    """mAP in percent: the mean of all labels' AP, those without positives counted as 0."""
    return float(100 * average_precision(scores, targets, ties).mean())


def _ap(score: NDArray[np.float64], positive: NDArray[np.bool_], ties: str) -> float:
    if not positive.any():
        return 0.0
    order = score.argsort()[::-1]
    hits = positive[order]
    found, rank = hits.cumsum(), np.arange(1, len(hits) + 1)
    if ties == "grouped":  # every member of a tie stands where the last one does
        ordered = score[order]
        last = np.searchsorted(-ordered, -ordered, side="right") - 1
        found, rank = found[last], rank[last]
        return float((found / rank)[hits].sum() / positive.sum())
    return float((found / rank)[hits].sum() / (positive.sum() + 1e-8))


def bootstrap_map(
    scores: ArrayLike, targets: ArrayLike, draws: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """mAP in percent of ``draws`` samples of the images with replacement.

    The same seed draws the same samples, so that two methods' values can be subtracted draw by draw. A label of
    which a sample has no positive is left out of that sample's mean.
    """
    score, positive = np.asarray(scores, dtype=np.float64), np.asarray(targets) == 1
    n, labels = score.shape
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), draws).astype(np.float32)
    total, counted = np.zeros(draws), np.zeros(draws)
    for c in range(labels):
        order = (-score[:, c]).argsort(kind="stable")
        copies = times[:, order]
        hits = copies * positive[order, c]
        precision = hits.cumsum(axis=1) / copies.cumsum(axis=1).clip(min=1)
        positives = hits.sum(axis=1)
        total += np.where(positives > 0, (precision * hits).sum(axis=1) / positives.clip(min=1), 0)
        counted += positives > 0
    return np.asarray(100 * total / counted.clip(min=1))
