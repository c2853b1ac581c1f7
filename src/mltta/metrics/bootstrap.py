"""Confidence intervals of an mAP and of a difference: bootstrap samples of the images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mltta.metrics.average_precision import Absent, Floats, Ranked, columns, mean_average_precision, ratio

DRAWN_AT_ONCE = 2**21  # images times draws in memory at once


def bootstrap_map(
    scores: ArrayLike, targets: ArrayLike, draws: int = 1000, seed: int = 0, absent: Absent = "zero"
) -> Floats:
    """mAP in percent of ``draws`` bootstrap samples of the images, ties grouped, centred on the mAP.

    The same seed gives the same samples, so that two methods can be subtracted sample by sample. A label with
    positives, but none in a sample, is excluded from that sample's mean; ``absent`` applies to labels without any
    positives. Memory: a few draws, and each label's image order.
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
        for ap in (label.drawn(copies) for label in ranked):
            total += np.nan_to_num(ap)
            counted += ~np.isnan(ap)
        part[:] = np.where(counted > 0, ratio(total, counted), np.nan)
    # Labels with few positives are missing from samples or rank higher in them, so only the spread is used.
    point = np.mean([label.average_precision() for label in ranked])
    spread = np.nan_to_num(drawn - np.nanmean(drawn))  # ignore samples without positives
    return np.asarray(100 * (point + spread) * (len(ranked) / labels if absent == "zero" else 1))


def interval(
    scores: ArrayLike, targets: ArrayLike, draws: int = 1000, seed: int = 0, absent: Absent = "zero"
) -> tuple[float, float, float]:
    """mAP in percent, with the low and high end of its 95% interval over images.

    It estimates the variation between samples of as many images. AP of labels with few positives is biased upwards,
    as every positive is counted in its own rank; by definition of mAP, this is not corrected.
    """
    drawn = bootstrap_map(scores, targets, draws, seed, absent)
    return mean_average_precision(scores, targets, absent=absent), *interval_of(drawn, 0, 100)


def interval_of(drawn: Floats, low: float = -np.inf, high: float = np.inf) -> tuple[float, float]:
    """The ends of the 95% interval of samples, clipped to the given limits."""
    ends = np.clip(np.percentile(drawn, [2.5, 97.5]), low, high)
    return float(ends[0]), float(ends[1])


@dataclass(frozen=True)
class Difference:
    """Difference of two mAPs in percentage points, with a 95% interval over images."""

    difference: float
    low: float
    high: float


def paired_difference(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    targets: ArrayLike,
    draws: int = 1000,
    seed: int = 0,
    absent: Absent = "zero",
) -> Difference:
    """Compare two methods on the same images, with the same bootstrap samples."""
    both = (scores_a, scores_b)
    drawn_a, drawn_b = (bootstrap_map(scores, targets, draws, seed, absent) for scores in both)
    map_a, map_b = (mean_average_precision(scores, targets, absent=absent) for scores in both)
    return Difference(map_a - map_b, *interval_of(drawn_a - drawn_b))
