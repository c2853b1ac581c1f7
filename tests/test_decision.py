"""The rule that says which labels an image shows."""

from __future__ import annotations

import numpy as np
import pytest

from mltta.decision import SHOWN_FROM, Decision, Presence
from mltta.errors import ConfigError

RULE = Presence(share=0.5, enough=0.1, least=0.2, floor_probability=0.0, floor_votes=0.0)


def test_evidence_is_the_geometric_mean_of_both_witnesses():
    evidence = RULE.evidence(np.float32([[0.81, 0.04]]), np.float32([[0.25, 1.0]]))
    np.testing.assert_allclose(evidence, [[0.45, 0.2]], rtol=1e-6)


def test_a_label_needs_its_share_of_the_best_and_enough_of_its_own():
    votes = np.float32([[0.9, 0.9, 0.9]])
    assert RULE.present(np.float32([[0.8, 0.4, 0.39]]), votes).tolist() == [[True, True, False]]
    assert RULE.present(np.float32([[0.15, 0.09, 0.01]]), votes).tolist() == [[True, False, False]]


def test_nothing_is_present_when_hardly_a_caption_speaks_of_the_list():
    evidence = np.float32([[0.9, 0.8], [0.9, 0.8]])
    votes = np.float32([[0.19, 0.0], [0.2, 0.0]])
    assert RULE.present(evidence, votes).any(axis=-1).tolist() == [False, True]


def test_the_order_of_the_labels_does_not_matter():
    draw = np.random.default_rng(0)
    p, v = draw.random((2, 5, 9), np.float32)
    order = draw.permutation(9)
    rule = Presence()
    plain = rule.present(rule.evidence(p, v), v)
    found = rule.present(rule.evidence(p[:, order], v[:, order]), v[:, order])
    np.testing.assert_array_equal(found, plain[:, order])


def logits(probability: np.ndarray) -> np.ndarray:
    """One branch (B, 1, C) whose softmax is given."""
    return np.log(probability / probability.sum(axis=-1, keepdims=True))[:, None]


def test_a_label_is_shown_if_it_has_the_evidence_that_it_needs_whatever_the_photo():
    draw = np.random.default_rng(0)
    p, v = draw.random((2, 200, 9), np.float32) ** 6 + 1e-6
    p /= p.sum(axis=1, keepdims=True)
    decision = Decision()
    score = decision.scores(logits(p), v, "logits")
    evidence = decision.rule.evidence(p, v)
    np.testing.assert_array_equal(decision.shown(score), decision.rule.present(evidence, v))
    assert 0.05 < decision.shown(score).mean() < 0.95
    assert (score > 0).all()
    assert (score < 1).all()
    mentioned = v.max(axis=1) >= decision.rule.least
    order = evidence.argsort(axis=1)[mentioned]
    assert (np.diff(np.take_along_axis(score[mentioned], order, axis=1), axis=1) >= -1e-6).all()


def test_just_the_evidence_that_a_label_needs_is_the_score_from_which_labels_are_shown():
    # evidence of 0.8, of half of that, and of half of what is needed; probabilities add up to one with a fourth label
    p = np.float32([[0.4, 0.2, 0.1, 0.3]])
    v = np.float32([[0.4, 0.2, 0.1, 0.0]])
    rule = Presence(share=0.5, enough=0.1, least=0.2, floor_probability=0.0, floor_votes=0.0)
    decision = Decision(rule=rule)
    score = decision.scores(logits(p), v, "logits")
    odds = SHOWN_FROM / (1 - SHOWN_FROM)
    np.testing.assert_allclose(score[0, :3], [s * odds / (1 + s * odds) for s in (2.0, 1.0, 0.5)], rtol=1e-5)


def test_log_odds_are_probabilities_as_they_stand():
    odds = np.float32([[[-3.0, 0.0, 2.0]]])
    score = Decision().scores(odds, None, "odds")
    np.testing.assert_allclose(np.log(score / (1 - score)), odds[0], rtol=1e-5)
    assert Decision().shown(score).tolist() == [[False, True, True]]


@pytest.mark.parametrize(
    ("threshold", "top_k", "shown"),
    [
        (None, None, "bd"),
        (0.3, None, "bd"),
        (0.0, None, "abcd"),
        (0.6, None, "b"),
        (None, 3, "bcd"),
        (0.5, 3, "bd"),
        (0.5, 1, "b"),
        (1.0, None, ""),
    ],
)
def test_a_threshold_and_a_number_of_labels_both_limit_what_is_shown(threshold, top_k, shown):
    scores = np.float32([[0.1, 0.9, 0.2, 0.5]])
    (found,) = Decision(threshold, top_k).shown(scores)
    assert "".join(label for label, here in zip("abcd", found, strict=True) if here) == shown


def test_labels_of_one_score_are_shown_in_the_order_of_the_list():
    assert Decision(top_k=2).shown(np.float32([[0.5, 0.5, 0.5]])).tolist() == [[True, True, False]]


@pytest.mark.parametrize("bad", [{"threshold": 1.5}, {"threshold": -0.1}, {"top_k": 0}])
def test_a_decision_out_of_range_is_refused(bad):
    with pytest.raises(ConfigError):
        Decision(**bad)


@pytest.mark.parametrize("bad", [{"share": 1.5}, {"least": -0.1}, {"enough": 2}, {"captions_per_view": 0}])
def test_constants_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError):
        Presence(**bad)
