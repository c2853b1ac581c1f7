"""AP and mAP, of all images or apart by how many labels they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mltta.metrics.ranking import Floats, Ties, columns, label_ap

Absent = Literal["zero", "skip"]

LABEL_BINS: Mapping[str, tuple[int, int | None]] = {
    "1-2": (1, 2),
    "3-4": (3, 4),
    "5-7": (5, 7),
    "8+": (8, None),
}


def average_precision(scores: ArrayLike, targets: ArrayLike, ties: Ties = "grouped") -> Floats:
    """AP of each label, 0 to 1: the mean over positives of the precision at their rank.

    Args:
        scores: (N, C), finite.
        targets: (N, C) of 1, 0 and -1.
        ties: "grouped" gives equal scores one shared rank, as scikit-learn does, so that the order of the
            images never matters; "released" ranks them as numpy's sort happens to leave them.

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

    A label without positives counts as 0 with absent="zero", as in the released code and scikit-learn, and is left
    out of the mean with "skip"; NaN when no label is left.
    """
    ap = [
        label_ap(score, target, ties)
        for score, target in columns(scores, targets)
        if absent == "zero" or (target == 1).any()
    ]
    return float(100 * np.mean(ap)) if ap else float("nan")


@dataclass(frozen=True)
class CountBin:
    """The images that have so many labels."""

    images: int
    labels: int  # those with a positive among the images
    mean_ap: float  # over those labels, in percent; NaN when there are none


def by_label_count(
    scores: ArrayLike,
    targets: ArrayLike,
    bins: Mapping[str, tuple[int, int | None]] = LABEL_BINS,
    ties: Ties = "grouped",
) -> dict[str, CountBin]:
    """mAP among the images with few and with many labels.

    ``bins`` names (least, most) labels of an image, both inclusive, None for no limit.
    """
    count = np.zeros(len(np.asarray(targets)), dtype=np.int64)
    for _, target in columns(scores, targets):
        count += target == 1
    rows = {
        name: np.flatnonzero((count >= least) & (count <= (np.inf if most is None else most)))
        for name, (least, most) in bins.items()
    }
    ap: dict[str, list[float]] = {name: [] for name in bins}
    for score, target in columns(scores, targets):
        for name, row in rows.items():
            if (target[row] == 1).any():
                ap[name].append(label_ap(score[row], target[row], ties))
    return {
        name: CountBin(len(row), len(ap[name]), float(100 * np.mean(ap[name])) if ap[name] else float("nan"))
        for name, row in rows.items()
    }
