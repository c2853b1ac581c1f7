"""How good scores and label sets are: AP and mAP, by label count, precision and recall, calibration, intervals.

Everywhere scores are (N, C), one per image and label, and targets (N, C): 1 present, 0 absent, -1 left out, that is,
the image takes no part in that label's figures. Arrays are read one label at a time, so that scores may be a memory
map that is larger than the memory.
"""

from mltta.metrics.average_precision import (
    LABEL_BINS,
    CountBin,
    average_precision,
    by_label_count,
    mean_average_precision,
)
from mltta.metrics.bootstrap import Difference, bootstrap_map, interval, interval_of, paired_difference
from mltta.metrics.calibration import calibration_error
from mltta.metrics.precision_recall import SetMetrics, set_metrics

__all__ = [
    "LABEL_BINS",
    "CountBin",
    "Difference",
    "SetMetrics",
    "average_precision",
    "bootstrap_map",
    "by_label_count",
    "calibration_error",
    "interval",
    "interval_of",
    "mean_average_precision",
    "paired_difference",
    "set_metrics",
]
