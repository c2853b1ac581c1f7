"""The metrics against the released code's recorded values, scikit-learn and torchmetrics, and as properties."""

from __future__ import annotations

import doctest
import tracemalloc
from importlib import import_module

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays
from sklearn.metrics import average_precision_score, precision_recall_fscore_support
from torchmetrics.classification import BinaryCalibrationError, MultilabelAveragePrecision

from mltta.metrics import (
    LABEL_BINS,
    average_precision,
    by_label_count,
    calibration_error,
    mean_average_precision,
    set_metrics,
)
from tests import golden_data as golden

MAP = golden.tensors("map")
CASES = sorted({key.split("/")[0] for key in MAP})
TIED = {"constant_scores", "ties_large_n", "ties_small_n"}


def recorded(case):
    """Scores and targets of a recorded case; the released code calls absent whatever is not 1."""
    return MAP[f"{case}/scores"].numpy(), (MAP[f"{case}/labels"].numpy() == 1).astype(np.int8)


def random_case(seed, n=300, labels=5, decimals=8, left_out=0.0, share=0.2):
    """Scores in [0, 1], rounded for ties, and targets, some of them left out."""
    rng = np.random.default_rng(seed)
    targets = (rng.random((n, labels)) < share).astype(np.int8)
    scores = (rng.random((n, labels)) * 0.7 + 0.3 * targets).round(decimals)
    targets[rng.random((n, labels)) < left_out] = -1
    return scores, targets


@pytest.mark.parametrize("case", [c for c in CASES if c not in TIED])
def test_without_ties_ap_and_map_equal_the_released_code(case):
    scores, targets = recorded(case)
    for ties in ("released", "grouped"):
        np.testing.assert_allclose(average_precision(scores, targets, ties), MAP[f"{case}/ap"], atol=1e-7)
        assert mean_average_precision(scores, targets, ties) == pytest.approx(
            MAP[f"{case}/mAP"].item(), abs=1e-5
        )


@pytest.mark.parametrize("case", sorted(TIED))
def test_with_ties_ap_lies_between_the_best_and_the_worst_order(case):
    scores, targets = recorded(case)
    ap = average_precision(scores, targets, "released")
    assert (ap <= MAP[f"{case}/ap_best_tie_order"].numpy() + 1e-7).all()
    assert (ap >= MAP[f"{case}/ap_worst_tie_order"].numpy() - 1e-7).all()


@pytest.mark.parametrize("decimals", [0, 1, 8], ids=["many ties", "some ties", "no ties"])
@pytest.mark.parametrize("left_out", [0.0, 0.3])
def test_grouped_ap_equals_scikit_learn_and_torchmetrics(decimals, left_out):
    scores, targets = random_case(decimals, decimals=decimals, left_out=left_out)
    ap = average_precision(scores, targets)
    kept = targets >= 0
    want = [average_precision_score(targets[k, c], scores[k, c]) for c, k in enumerate(kept.T)]
    np.testing.assert_allclose(ap, want, atol=1e-12)
    pair = torch.from_numpy(scores), torch.from_numpy(targets).long()
    for average, ours in (("none", ap), ("macro", ap.mean())):
        metric = MultilabelAveragePrecision(num_labels=5, average=average, ignore_index=-1)
        np.testing.assert_allclose(metric(*pair).numpy(), ours, atol=1e-6)


def test_logits_need_no_rescaling_here_while_torchmetrics_turns_them_into_ties():
    scores, targets = random_case(0)
    logits = torch.from_numpy(15 + 15 * scores).float()  # the range of CLIP's
    ours = mean_average_precision(logits, targets) / 100
    metric = MultilabelAveragePrecision(num_labels=5, average="macro")
    want = torch.from_numpy(targets).long()
    assert metric(logits / 30, want).item() == pytest.approx(ours, abs=1e-6)
    assert torch.sigmoid(logits).unique().numel() < logits.numel() / 4
    assert abs(metric(logits, want).item() - ours) > 0.05


def test_images_left_out_of_a_label_change_nothing_but_their_absence():
    scores, targets = random_case(3, left_out=0.3)
    for ties in ("grouped", "released"):
        ap = average_precision(scores, targets, ties)
        for c in range(5):
            kept = targets[:, c] >= 0
            assert ap[c] == average_precision(scores[kept, c : c + 1], targets[kept, c : c + 1], ties)[0]


@pytest.mark.filterwarnings("ignore:No positive")
def test_a_label_without_positives_counts_as_zero_as_elsewhere_or_is_skipped():
    scores, targets = np.array([[0.9, 0.9], [0.1, 0.1]]), np.array([[1, 0], [0, 0]])
    assert mean_average_precision(scores, targets) == 50.0
    assert average_precision_score(targets, scores, average="macro") == 0.5
    metric = MultilabelAveragePrecision(num_labels=2, average="macro")
    assert metric(torch.from_numpy(scores), torch.from_numpy(targets)).item() == 0.5
    assert mean_average_precision(scores, targets, absent="skip") == 100.0
    assert np.isnan(mean_average_precision(scores, [[0, 0], [0, 0]], absent="skip"))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_without_a_rank_are_refused(bad):
    with pytest.raises(ValueError, match=r"1 scores of label 1 .* NaN or infinite"):
        average_precision([[0.1, bad], [0.2, 0.3]], [[1, 0], [0, 1]])


def test_shapes_and_targets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 1\).*\(1, 2\)"):
        average_precision([[1.0], [2.0]], [[1, 0]])
    with pytest.raises(ValueError, match="not empty"):
        average_precision(np.zeros((0, 3)), np.zeros((0, 3)))
    with pytest.raises(ValueError, match=r"label 0 .* 1 .present., 0 .absent. or -1 .ignored."):
        average_precision([[1.0], [2.0]], [[2], [0]])


def test_scores_on_disk_are_read_a_label_at_a_time(tmp_path):
    rng = np.random.default_rng(0)
    scores = np.memmap(tmp_path / "scores", np.float32, "w+", shape=(50_000, 40))
    scores[:] = rng.random((50_000, 40), dtype=np.float32)
    targets = (rng.random((50_000, 40)) < 0.01).astype(np.int8)
    want = average_precision_score(targets[:, 7], scores[:, 7])
    tracemalloc.start()
    ap = average_precision(scores, targets)
    by_label_count(scores, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ap[7] == pytest.approx(want, abs=1e-9)
    assert peak < scores.nbytes / 2


column = st.integers(2, 30).flatmap(
    lambda n: st.tuples(
        arrays.arrays(np.int16, (n, 2), elements=st.integers(-5, 5)),  # so few values that many are tied
        arrays.arrays(np.int8, (n, 2), elements=st.sampled_from([-1, 0, 1])),
    )
)
quick = settings(max_examples=60, deadline=None)


@quick
@given(column, st.randoms(use_true_random=False))
def test_neither_a_monotone_transform_nor_the_order_of_the_images_changes_ap(case, random):
    scores, targets = case
    ap = average_precision(scores, targets)
    np.testing.assert_array_equal(ap, average_precision(np.exp(scores / 3), targets))
    order = random.sample(range(len(scores)), len(scores))
    np.testing.assert_allclose(ap, average_precision(scores[order], targets[order]), rtol=1e-12)


@quick
@given(column)
def test_a_negative_below_all_others_changes_nothing(case):
    scores, targets = case
    longer = np.vstack([scores, [[-6, -6]]]), np.vstack([targets, [[0, 0]]])
    np.testing.assert_array_equal(average_precision(scores, targets), average_precision(*longer))


@quick
@given(column)
def test_a_perfect_ranking_has_ap_1_and_any_ap_is_at_least_the_share_of_positives(case):
    scores, targets = case
    positives, kept = (targets == 1).sum(0), (targets >= 0).sum(0)
    np.testing.assert_array_equal(average_precision(targets + scores / 100, targets), positives > 0)
    worst = average_precision(-targets + scores / 100, targets)
    assert (average_precision(scores, targets) >= worst - 1e-12).all()
    constant = average_precision(np.zeros_like(scores), targets)
    np.testing.assert_allclose(constant, positives / np.maximum(kept, 1))


def test_label_count_bins_hold_the_images_with_so_many_labels_and_only_labels_present_in_them():
    rng = np.random.default_rng(4)
    targets = np.zeros((400, 12), dtype=np.int8)
    for row in targets:
        row[rng.permutation(11)[: rng.integers(0, 11)]] = 1
    targets[(targets.sum(1) >= 8), 0] = -1  # no positive of label 0 among those with many
    scores = rng.random((400, 12)) + 0.5 * targets
    count = (targets == 1).sum(1)
    found = by_label_count(scores, targets)
    assert list(found) == list(LABEL_BINS) == ["1-2", "3-4", "5-7", "8+"]
    for name, among in zip(LABEL_BINS, ([1, 2], [3, 4], [5, 6, 7], range(8, 13)), strict=True):
        rows = np.isin(count, among)
        assert found[name].images == rows.sum()
        assert found[name].labels == (targets[rows] == 1).any(0).sum()
        want = mean_average_precision(scores[rows], targets[rows], absent="skip")
        assert found[name].mean_ap == pytest.approx(want, abs=1e-9)
    assert found["8+"].labels < found["1-2"].labels < 12
    nothing = by_label_count(scores, targets, {"50+": (50, None)})["50+"]
    assert (nothing.images, nothing.labels) == (0, 0)
    assert np.isnan(nothing.mean_ap)


@pytest.mark.parametrize("left_out", [0.0, 0.3])
def test_set_metrics_equal_scikit_learn(left_out):
    scores, targets = random_case(5, left_out=left_out, share=0.3)
    predicted = scores > 0.5
    predicted[:, 4], targets[:, 3] = False, np.minimum(targets[:, 3], 0)  # never said; never true
    m = set_metrics(predicted, targets)
    kept = targets >= 0
    flat = precision_recall_fscore_support(targets[kept], predicted[kept], average="binary")
    np.testing.assert_allclose([m.precision, m.recall, m.f1], flat[:3])
    each = [
        precision_recall_fscore_support(
            targets[k, c] == 1, predicted[k, c], average="binary", zero_division=0
        )
        for c, k in enumerate(kept.T)
    ]
    ours = np.stack([m.per_class_precision, m.per_class_recall, m.per_class_f1], axis=1)
    np.testing.assert_allclose(ours, [row[:3] for row in each])
    assert m.positives.tolist() == (targets == 1).sum(0).tolist()
    assert m.predicted.tolist() == (predicted & kept).sum(0).tolist()
    assert m.labels_per_image == pytest.approx((predicted & kept).sum() / 300)


def test_class_f1_is_the_f1_of_the_mean_precision_and_recall_and_mean_f1_the_mean_of_the_labels_f1():
    m = set_metrics(np.array([[1, 1], [0, 1]], bool), [[1, 1], [1, 0]])
    assert m.per_class_precision.tolist() == [1, 0.5]
    assert m.per_class_recall.tolist() == [0.5, 1]
    assert (m.class_precision, m.class_recall, m.class_f1) == (0.75, 0.75, 0.75)
    assert m.mean_f1 == pytest.approx(2 / 3)


def test_scores_in_place_of_booleans_are_refused():
    with pytest.raises(ValueError, match="boolean"):
        set_metrics([[0.2, 0.9]], [[0, 1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_calibration_error_equals_torchmetrics(dtype):
    scores, targets = random_case(6, n=500, left_out=0.2)
    scores[:20] = scores[:20].round()  # exactly 0 and 1
    scores = scores.astype(dtype)
    flat = torch.from_numpy(scores).flatten(), torch.from_numpy(targets).long().flatten()
    for bins in (15, 4):
        want = BinaryCalibrationError(n_bins=bins, norm="l1", ignore_index=-1)(*flat).item()
        assert calibration_error(scores, targets, bins) == pytest.approx(want, abs=1e-6)


def test_calibration_error_of_honest_probabilities_is_small_and_of_logits_refused():
    rng = np.random.default_rng(7)
    honest = rng.random((20_000, 3))
    assert calibration_error(honest, rng.random(honest.shape) < honest) < 0.01
    assert calibration_error(np.full((4, 1), 0.9), [[0], [0], [0], [1]]) == pytest.approx(0.65)
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibration_error([[17.0]], [[1]])


def test_the_example_runs():
    assert doctest.testmod(import_module("mltta.metrics.average_precision")) == (0, 1)
