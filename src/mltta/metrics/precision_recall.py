"""Precision, recall and F1 of the labels called present, and how far scores are from the share that is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltta.metrics.average_precision import Floats, columns, ratio


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
    pairs = ((said, target, target == 1) for said, target in columns(predicted, targets))
    counts = [
        (np.sum(said & true), np.sum(said & (target >= 0)), np.sum(true)) for said, target, true in pairs
    ]
    hits, said, positives = np.array(counts, dtype=np.int64).T
    precision, recall, f1 = ratio(hits, said), ratio(hits, positives), ratio(2 * hits, said + positives)
    cp, cr = float(precision.mean()), float(recall.mean())
    return SetMetrics(
        precision=float(ratio(hits.sum(), said.sum())),
        recall=float(ratio(hits.sum(), positives.sum())),
        f1=float(ratio(2 * hits.sum(), said.sum() + positives.sum())),
        class_precision=cp,
        class_recall=cr,
        class_f1=float(ratio(2 * cp * cr, cp + cr)),
        mean_f1=float(f1.mean()),
        labels_per_image=float(ratio(said.sum(), len(np.asarray(targets)))),
        per_class_precision=precision,
        per_class_recall=recall,
        per_class_f1=f1,
        positives=positives,
        predicted=said,
    )


def calibration_error(probabilities: ArrayLike, targets: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error over all pairs of image and label, 0 to 1, in bins of equal width."""
    # a bin starts with its lower edge, so that exactly 1 has a bin of its own, as in torchmetrics
    count, confidence, present = np.zeros((3, bins + 1))
    for probability, target in columns(probabilities, targets):
        probability, target = probability[target >= 0], target[target >= 0]
        if ((probability < 0) | (probability > 1)).any():
            raise ValueError("probabilities must lie between 0 and 1: apply a softmax or sigmoid first")
        edges = np.linspace(0, 1, bins + 1, dtype=np.result_type(probability, np.float32))
        place = np.digitize(probability, edges) - 1
        count += np.bincount(place, minlength=bins + 1)
        confidence += np.bincount(place, probability, minlength=bins + 1)
        present += np.bincount(place, target, minlength=bins + 1)
    return float(ratio(np.abs(present - confidence).sum(), count.sum()))
