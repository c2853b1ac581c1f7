"""Metrics of scores and label sets: AP and mAP, by label count, precision and recall, calibration, intervals.

Scores are (N, C), one per image and label. Targets are (N, C): 1 present, 0 absent, -1 ignored (the image is excluded
for that label). Arrays are processed one label at a time, so that scores may be a memory map larger than
memory.
"""

from mltta.metrics.average_precision import (
    LABEL_BINS,
    CountBin,
    average_precision,
    by_label_count,
    mean_average_precision,
    rows_by_count,
)
from mltta.metrics.bootstrap import Difference, bootstrap_map, interval, interval_of, paired_difference
from mltta.metrics.precision_recall import SetMetrics, calibration_error, set_metrics

__all__ = ["LABEL_BINS", "CountBin", "average_precision", "by_label_count", "mean_average_precision"]
__all__ += ["Difference", "bootstrap_map", "interval", "interval_of", "paired_difference"]
__all__ += ["SetMetrics", "calibration_error", "rows_by_count", "set_metrics"]
