"""mAP against the released code's recorded values and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from mltta.metrics import average_precision, bootstrap_map, mean_average_precision
from tests import golden_data as golden

MAP = golden.tensors("map")
CASES = sorted({key.split("/")[0] for key in MAP})
TIED = {"constant_scores", "ties_large_n", "ties_small_n"}


@pytest.mark.parametrize("case", [c for c in CASES if c not in TIED])
def test_without_ties_ap_and_map_equal_the_released_code(case):
    scores, labels = MAP[f"{case}/scores"].numpy(), MAP[f"{case}/labels"].numpy()
    for ties in ("released", "grouped"):
        np.testing.assert_allclose(average_precision(scores, labels, ties), MAP[f"{case}/ap"], atol=1e-7)
        assert mean_average_precision(scores, labels, ties) == pytest.approx(
            MAP[f"{case}/mAP"].item(), abs=1e-5
        )


@pytest.mark.parametrize("case", sorted(TIED))
def test_with_ties_ap_lies_between_the_best_and_the_worst_order(case):
    scores, labels = MAP[f"{case}/scores"].numpy(), MAP[f"{case}/labels"].numpy()
    ap = average_precision(scores, labels, "released")
    assert (ap <= MAP[f"{case}/ap_best_tie_order"].numpy() + 1e-7).all()
    assert (ap >= MAP[f"{case}/ap_worst_tie_order"].numpy() - 1e-7).all()


@pytest.mark.parametrize("decimals", [0, 1, 8], ids=["many ties", "some ties", "no ties"])
def test_grouped_ties_equal_scikit_learn_and_do_not_depend_on_the_order_of_the_images(decimals):
    rng = np.random.default_rng(decimals)
    scores, labels = rng.normal(size=(300, 5)).round(decimals), rng.random((300, 5)) < 0.2
    ap = average_precision(scores, labels)
    want = [average_precision_score(labels[:, c], scores[:, c]) for c in range(5)]
    np.testing.assert_allclose(ap, want, atol=1e-12)
    order = rng.permutation(300)
    np.testing.assert_allclose(average_precision(scores[order], labels[order]), ap, atol=1e-12)


def test_a_label_without_positives_counts_as_zero():
    assert mean_average_precision([[0.9, 0.9], [0.1, 0.1]], [[1, 0], [0, -1]]) == 50.0


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 1\).*\(1, 2\)"):
        average_precision([[1.0], [2.0]], [[1, 0]])


def test_bootstrap_draws_centre_on_the_map_and_pair_by_seed():
    rng = np.random.default_rng(1)
    targets = rng.random((400, 4)) < 0.3
    scores = rng.normal(size=(400, 4)) + 1.5 * targets
    drawn = bootstrap_map(scores, targets, draws=300)
    assert drawn.mean() == pytest.approx(mean_average_precision(scores, targets), abs=1.0)
    assert 0.5 < drawn.std() < 4
    assert np.array_equal(drawn, bootstrap_map(scores * 2 + 1, targets, draws=300))
    better = bootstrap_map(scores + 0.3 * targets, targets, draws=300)
    assert (better - drawn).min() > 0


def test_a_bootstrap_draw_is_the_weighted_average_precision_of_scikit_learn():
    rng = np.random.default_rng(2)
    targets, scores = rng.random((50, 1)) < 0.4, rng.normal(size=(50, 1))
    times = np.random.default_rng(0).multinomial(50, np.full(50, 1 / 50), 3)
    want = [100 * average_precision_score(targets[:, 0], scores[:, 0], sample_weight=t) for t in times]
    np.testing.assert_allclose(bootstrap_map(scores, targets, draws=3), want, rtol=1e-5)
