"""How far scores are from the share of labels that are there."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mltta.metrics.ranking import columns, ratio


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
    return float(ratio(np.abs(present - confidence).sum(), count.sum()))
