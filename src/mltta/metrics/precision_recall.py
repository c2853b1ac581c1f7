"""Precision, recall and F1 of predicted label sets, and calibration error of scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltta.metrics.average_precision import Floats, columns, ratio


@dataclass(frozen=True)
class SetMetrics:
    """Precision, recall and F1 (0 to 1) of predicted label sets; 0 if undefined.

    The literature's OP, OR and OF1 count all image-label pairs together. CP and CR are the means of the labels'
    precisions and recalls, and CF1 is the F1 of those two means. ``mean_f1`` is the mean of the labels' own
    F1 (scikit-learn's macro F1), which differs.
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
    positives: NDArray[np.int64]  # (C,) images with the label
    predicted: NDArray[np.int64]  # (C,) images predicted to have it


def set_metrics(predicted: ArrayLike, targets: ArrayLike) -> SetMetrics:
    """Compare predicted label sets, boolean (N, C), with the targets."""
    if np.asarray(predicted).dtype != np.bool_:
        raise ValueError("predicted must be boolean: apply a threshold to scores first")
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
    """Expected calibration error over all image-label pairs, 0 to 1, with bins of equal width."""
    # bins include their lower edge, so exactly 1 has its own bin, as in torchmetrics
    count, confidence, present = np.zeros((3, bins + 1))
    for probability, target in columns(probabilities, targets):
        probability, target = probability[target >= 0], target[target >= 0]
        if ((probability < 0) | (probability > 1)).any():
            raise ValueError("probabilities must be between 0 and 1: apply a softmax or sigmoid first")
        edges = np.linspace(0, 1, bins + 1, dtype=np.result_type(probability, np.float32))
        place = np.digitize(probability, edges) - 1
        count += np.bincount(place, minlength=bins + 1)
        confidence += np.bincount(place, probability, minlength=bins + 1)
        present += np.bincount(place, target, minlength=bins + 1)
    return float(ratio(np.abs(present - confidence).sum(), count.sum()))
