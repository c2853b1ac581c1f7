"""How good scores and label sets are: AP and mAP, by label count, precision and recall, calibration, intervals.

Everywhere scores are (N, C), one per image and label, and targets (N, C): 1 present, 0 absent, -1 left out, that is,
the image takes no part in that label's figures. Arrays are read one label at a time, so that scores may be a memory
map that is larger than the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltta.ranking import Floats, Ranked, Ties, columns, label_ap

Absent = Literal["zero", "skip"]

LABEL_BINS: Mapping[str, tuple[int, int | None]] = {
    "1-2": (1, 2),
    "3-4": (3, 4),
    "5-7": (5, 7),
    "8+": (8, None),
}
DRAWN_AT_ONCE = 2**21  # images times draws that are held at a time


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


@dataclass(frozen=True)
class SetMetrics:
    """Precision, recall and F1 (0 to 1) of the labels called present; what would divide by zero is 0.

    The literature's OP, OR, OF1 count all pairs of image and label together; its CP and CR are the means of the
    labels' precisions and recalls, and CF1 is the F1 of those two means. ``mean_f1`` is the mean of the labels' own
    F1, which scikit-learn calls macro; the two differ.
    """

    precision: float  # OP
    recall: float  # OR
    f1: float  # OF1
    class_precision: float  # CP
    class_recall: float  # CR
    class_f1: float  # CF1
    mean_f1: float
    labels_per_image: float
    per_class_precision: Floats  # (C,)
    per_class_recall: Floats
    per_class_f1: Floats
    positives: NDArray[np.int64]  # (C,) images that have the label
    predicted: NDArray[np.int64]  # (C,) images said to have it


def set_metrics(predicted: ArrayLike, targets: ArrayLike) -> SetMetrics:
    """Compare the labels called present, (N, C) of booleans, with the targets."""
    if np.asarray(predicted).dtype != np.bool_:
        raise ValueError("predicted must be booleans: compare scores with a threshold first")
    counts = [
        (np.sum(said & (target == 1)), np.sum(said & (target >= 0)), np.sum(target == 1))
        for said, target in columns(predicted, targets)
    ]
    hits, said, positives = np.array(counts, dtype=np.int64).T
    precision, recall, f1 = _ratio(hits, said), _ratio(hits, positives), _ratio(2 * hits, said + positives)
    cp, cr = float(precision.mean()), float(recall.mean())
    return SetMetrics(
        precision=float(_ratio(hits.sum(), said.sum())),
        recall=float(_ratio(hits.sum(), positives.sum())),
        f1=float(_ratio(2 * hits.sum(), said.sum() + positives.sum())),
        class_precision=cp,
        class_recall=cr,
        class_f1=float(_ratio(2 * cp * cr, cp + cr)),
        mean_f1=float(f1.mean()),
        labels_per_image=float(_ratio(said.sum(), len(np.asarray(targets)))),
        per_class_precision=precision,
        per_class_recall=recall,
        per_class_f1=f1,
        positives=positives,
        predicted=said,
    )


def calibration_error(probabilities: ArrayLike, targets: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error over all pairs of image and label, 0 to 1, in bins of equal width."""
    # a bin starts with its lower edge, so that exactly 1 has a bin of its own, as in torchmetrics
    count, confidence, present = np.zeros(bins + 1), np.zeros(bins + 1), np.zeros(bins + 1)
    for probability, target in columns(probabilities, targets):
        kept = target >= 0
        probability, target = probability[kept], target[kept]
        if ((probability < 0) | (probability > 1)).any():
            raise ValueError("probabilities must lie between 0 and 1: apply a softmax or sigmoid first")
        edges = np.linspace(0, 1, bins + 1, dtype=np.result_type(probability, np.float32))
        place = np.digitize(probability, edges) - 1
        count += np.bincount(place, minlength=bins + 1)
        confidence += np.bincount(place, probability, minlength=bins + 1)
        present += np.bincount(place, target, minlength=bins + 1)
    return float(_ratio(np.abs(present - confidence).sum(), count.sum()))


def _ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """part / whole, and 0 where whole is."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.asarray(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))


def bootstrap_map(
    scores: ArrayLike, targets: ArrayLike, draws: int = 1000, seed: int = 0, absent: Absent = "zero"
) -> Floats:
    """mAP in percent of ``draws`` samples of the images with replacement, ties grouped, centred on the mAP.

    The same seed draws the same samples, so that two methods' values can be subtracted draw by draw. A label that
    has positives, but none in a sample, is left out of that sample's mean; ``absent`` is about labels that have none
    at all. Besides a few draws, only each label's order of the images is held.
    """
    ranked = [Ranked.of(score, target) for score, target in columns(scores, targets) if (target == 1).any()]
    if not ranked:
        return np.full(draws, 0.0 if absent == "zero" else np.nan)
    n, labels = np.shape(targets)
    drawn, step = np.empty(draws), max(1, DRAWN_AT_ONCE // n)
    rng, share = np.random.default_rng(seed), np.full(n, 1 / n)
    for start in range(0, draws, step):
        part = drawn[start : start + step]
        copies = rng.multinomial(n, share, len(part)).astype(np.uint8)
        total, counted = np.zeros(len(part)), np.zeros(len(part), dtype=int)
        for label in ranked:
            ap = label.drawn(copies)
            total += np.nan_to_num(ap)
            counted += ~np.isnan(ap)
        part[:] = np.where(counted > 0, _ratio(total, counted), np.nan)
    # Labels with few positives drop out of draws or rank higher in them, so the draws tell the spread, not the middle.
    point = np.mean([label.average_precision() for label in ranked])
    spread = np.nan_to_num(drawn - np.nanmean(drawn))  # a draw without any positive says nothing
    return np.asarray(100 * (point + spread) * (len(ranked) / labels if absent == "zero" else 1))


def interval(
    scores: ArrayLike, targets: ArrayLike, draws: int = 1000, seed: int = 0, absent: Absent = "zero"
) -> tuple[float, float, float]:
    """mAP in percent, with the low and high end of its 95% interval over images.

    It says how far the mAP of other samples of as many images would lie. That AP of a label with few positives is
    too high on average, as every positive finds itself, is left as it is: so mAP is defined.
    """
    drawn = bootstrap_map(scores, targets, draws, seed, absent)
    low, high = np.clip(np.percentile(drawn, [2.5, 97.5]), 0, 100)
    return mean_average_precision(scores, targets, absent=absent), float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """How much higher the first mAP is, in percent points, with a 95% interval over images."""

    difference: float
    low: float
    high: float
    share_above: float  # of the draws in which the first is higher


def paired_difference(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    targets: ArrayLike,
    draws: int = 1000,
    seed: int = 0,
    absent: Absent = "zero",
) -> Difference:
    """Compare two methods on the same images, both judged on the same draws."""
    drawn_a, drawn_b = (
        bootstrap_map(scores, targets, draws, seed, absent) for scores in (scores_a, scores_b)
    )
    map_a, map_b = (mean_average_precision(scores, targets, absent=absent) for scores in (scores_a, scores_b))
    drawn = drawn_a - drawn_b
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Difference(map_a - map_b, float(low), float(high), float((drawn > 0).mean()))
