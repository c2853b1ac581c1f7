"""The rule that says which labels an image shows."""

from __future__ import annotations

import pytest
import torch

from mltta.captions.labelled import LabelledCaptions
from mltta.decision import SHOWN_FROM, Decision, Presence
from mltta.errors import ConfigError

RULE = Presence(share=0.5, enough=0.1, least=0.2, floor_probability=0.0, floor_votes=0.0)


def test_evidence_is_the_geometric_mean_of_both_witnesses():
    evidence = RULE.evidence(torch.tensor([[0.81, 0.04]]), torch.tensor([[0.25, 1.0]]))
    torch.testing.assert_close(evidence, torch.tensor([[0.45, 0.2]]))


def test_a_label_needs_its_share_of_the_best_and_enough_of_its_own():
    votes = torch.tensor([[0.9, 0.9, 0.9]])
    assert RULE.present(torch.tensor([[0.8, 0.4, 0.39]]), votes).tolist() == [[True, True, False]]
    assert RULE.present(torch.tensor([[0.15, 0.09, 0.01]]), votes).tolist() == [[True, False, False]]


def test_nothing_is_present_when_hardly_a_caption_speaks_of_the_list():
    evidence = torch.tensor([[0.9, 0.8], [0.9, 0.8]])
    votes = torch.tensor([[0.19, 0.0], [0.2, 0.0]])
    assert RULE.present(evidence, votes).any(-1).tolist() == [False, True]


def test_the_order_of_the_labels_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    p, v = torch.rand(5, 9, generator=generator), torch.rand(5, 9, generator=generator)
    order = torch.randperm(9, generator=generator)
    rule = Presence()
    plain = rule.present(rule.evidence(p, v), v)
    assert torch.equal(rule.present(rule.evidence(p[:, order], v[:, order]), v[:, order]), plain[:, order])


def test_a_label_is_shown_from_one_score_on_whatever_the_photo():
    generator = torch.Generator().manual_seed(0)
    p, v = torch.rand(200, 9, generator=generator) ** 6, torch.rand(200, 9, generator=generator) ** 6
    decision = Decision(None, 100.0)
    score, present = decision(p, v)
    assert torch.equal(score >= SHOWN_FROM - 1e-6, present)
    evidence = decision.rule.evidence(p, v)
    assert torch.equal(present, decision.rule.present(evidence, v))
    assert 0.05 < present.float().mean() < 0.95
    assert (score > 0).all()
    assert (score < 1).all()
    spoken_of = v.amax(dim=1) >= decision.rule.least
    assert torch.equal(score.argsort(dim=1)[spoken_of], evidence.argsort(dim=1)[spoken_of])


def test_just_the_evidence_that_a_label_needs_is_the_score_from_which_labels_are_shown():
    decision = Decision(None, 100.0, RULE)
    # evidence of 0.8, of half of that, and of half of what is needed
    p, v = torch.tensor([[0.8, 0.4, 0.2]]), torch.tensor([[0.8, 0.4, 0.2]])
    score, present = decision(p, v)
    odds = SHOWN_FROM / (1 - SHOWN_FROM)
    want = torch.tensor([[s * odds / (1 + s * odds) for s in (2.0, 1.0, 0.5)]])
    torch.testing.assert_close(score, want)
    assert present.tolist() == [[True, True, False]]


def test_log_odds_are_probabilities_as_they_stand():
    odds = torch.tensor([[-3.0, 0.0, 2.0]])
    score, present = Decision(None, 100.0).of_odds(odds)
    torch.testing.assert_close(score.logit(), odds)
    assert torch.equal(present, score >= SHOWN_FROM)


def test_votes_are_averaged_over_the_views():
    captions = LabelledCaptions(torch.eye(3), [[0], [1], []], 2)
    views = torch.stack([torch.eye(3)[0], torch.eye(3)[2]])[None]
    votes = Presence(captions_per_view=1).votes(views, captions, 40.0)
    torch.testing.assert_close(votes, torch.tensor([[0.5, 0.0]]))


@pytest.mark.parametrize("bad", [{"share": 1.5}, {"least": -0.1}, {"enough": 2}, {"captions_per_view": 0}])
def test_constants_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError):
        Presence(**bad)
