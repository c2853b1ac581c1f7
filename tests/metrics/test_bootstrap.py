"""Intervals of the mAP: what a draw is, that they hold the mAP, and how often they hold the true one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mltta.metrics import bootstrap, bootstrap_map, interval, mean_average_precision, paired_difference
from mltta.metrics.average_precision import Ranked


def rare_case(seed, n=400, labels=6, decimals=6):
    """Labels of which most have a handful of positives."""
    rng = np.random.default_rng(seed)
    targets = (rng.random((n, labels)) < np.geomspace(0.004, 0.2, labels)).astype(np.int8)
    scores = (rng.normal(size=(n, labels)) + 1.5 * targets).round(decimals)
    targets[rng.random((n, labels)) < 0.1] = -1
    return scores, targets


@pytest.mark.parametrize("decimals", [0, 6], ids=["ties", "no ties"])
def test_a_draw_ranks_each_copy_among_the_other_images(decimals):
    scores, targets = (a[:, -1] for a in rare_case(0, n=60, decimals=decimals))
    copies = np.random.default_rng(1).multinomial(60, np.full(60, 1 / 60), 5).astype(np.uint8)
    drawn = Ranked.of(scores, targets).drawn(copies)
    for times, got in zip(copies, drawn, strict=True):
        precisions = []
        for i in np.flatnonzero(targets == 1):
            others = np.repeat(np.arange(60), np.where(np.arange(60) == i, 0, times))
            above = [j for j in others if targets[j] >= 0 and scores[j] >= scores[i]]
            precision = (1 + sum(targets[j] == 1 for j in above)) / (1 + len(above))
            precisions += [precision] * int(times[i])
        assert got == pytest.approx(np.mean(precisions))


def test_a_draw_of_every_image_once_is_the_ap_itself_and_one_without_positives_is_undefined():
    scores, targets = rare_case(1)
    ranked = Ranked.of(scores[:, -1], targets[:, -1])
    once = np.ones((1, 400), dtype=np.uint8)
    assert ranked.drawn(once)[0] == pytest.approx(ranked.average_precision())
    assert np.isnan(ranked.drawn(once * (targets[:, -1] != 1).astype(np.uint8))[0])


def test_draws_centre_on_the_map_and_pair_by_seed():
    scores, targets = rare_case(2)
    drawn = bootstrap_map(scores, targets, draws=200)
    assert drawn.mean() == pytest.approx(mean_average_precision(scores, targets))
    assert 1 < drawn.std() < 15
    np.testing.assert_array_equal(drawn, bootstrap_map(scores * 2 + 1, targets, draws=200))
    assert not np.array_equal(drawn, bootstrap_map(scores, targets, draws=200, seed=1))
    np.testing.assert_allclose(bootstrap_map(targets, targets, draws=50), 100)


def test_drawing_in_parts_gives_the_same_values(monkeypatch):
    scores, targets = rare_case(3)
    whole = bootstrap_map(scores, targets, draws=61)
    for images in (1, 400 * 7, 400 * 60):  # one draw at a time, seven, and one left over
        monkeypatch.setattr(bootstrap, "DRAWN_AT_ONCE", images)
        np.testing.assert_array_equal(bootstrap_map(scores, targets, draws=61), whole)


def test_memory_does_not_grow_with_the_number_of_draws():
    rng = np.random.default_rng(4)
    targets = (rng.random((40_504, 2)) < [0.02, 0.5]).astype(np.int8)
    scores = rng.random((40_504, 2), dtype=np.float32)
    peaks = []
    for draws in (52, 156):
        tracemalloc.start()
        bootstrap_map(scores, targets, draws)
        peaks.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 120


@pytest.mark.parametrize("absent", ["zero", "skip"])
def test_the_interval_holds_the_map_also_with_rare_and_missing_labels(absent):
    for seed in range(20):
        scores, targets = rare_case(seed, n=200)
        targets[:, 2] = np.minimum(targets[:, 2], 0)
        point, low, high = interval(scores, targets, draws=200, seed=seed, absent=absent)
        assert point == mean_average_precision(scores, targets, absent=absent)
        assert 0 <= low < point < high <= 100
    nothing = interval(scores, np.zeros_like(targets), draws=10, absent=absent)
    np.testing.assert_array_equal(nothing, (0, 0, 0) if absent == "zero" else (np.nan,) * 3)


def test_four_of_five_intervals_and_more_hold_the_map_of_the_population():
    rng = np.random.default_rng(5)
    targets = (rng.random((100_000, 8)) < np.geomspace(0.01, 0.3, 8)).astype(np.int8)
    scores = rng.normal(size=targets.shape) + 2.5 * targets
    true = mean_average_precision(scores, targets)
    held, widths = [], []
    for repeat in range(60):
        sample = rng.integers(0, len(targets), 800)
        point, low, high = interval(scores[sample], targets[sample], draws=150, seed=repeat)
        held.append(low <= true <= high)
        widths.append((high - low, point))
    width, points = np.array(widths).T
    assert np.mean(held) >= 0.8
    assert 0.7 < width.mean() / (2 * 1.96 * points.std()) < 1.3  # as wide as the sampling noise, no wider


def test_a_paired_difference_is_found_where_the_single_intervals_overlap():
    rng = np.random.default_rng(6)
    targets = (rng.random((500, 5)) < 0.1).astype(np.int8)
    worse = rng.normal(size=targets.shape) + 1.5 * targets
    better = worse + 0.15 * targets
    found = paired_difference(better, worse, targets, draws=200)
    assert found.difference == mean_average_precision(better, targets) - mean_average_precision(
        worse, targets
    )
    assert 0 < found.low < found.difference < found.high
    _, low, _ = interval(better, targets, draws=200)
    _, _, high = interval(worse, targets, draws=200)
    assert low < high
    back = paired_difference(worse, better, targets, draws=200)
    assert back.difference == -found.difference
    assert back.low == pytest.approx(-found.high)


def test_two_methods_alike_differ_by_nothing():
    scores, targets = rare_case(7)
    same = paired_difference(scores, scores, targets, draws=20)
    assert (same.difference, same.low, same.high) == (0, 0, 0)
