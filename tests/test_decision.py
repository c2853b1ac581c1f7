"""The rule that says which labels an image shows."""

from __future__ import annotations

import pytest
import torch

from mltta.captions.labelled import LabelledCaptions
from mltta.decision import Presence
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


def test_votes_are_averaged_over_the_views():
    captions = LabelledCaptions(torch.eye(3), [[0], [1], []], 2)
    views = torch.stack([torch.eye(3)[0], torch.eye(3)[2]])[None]
    votes = Presence(captions_per_view=1).votes(views, captions, 40.0)
    torch.testing.assert_close(votes, torch.tensor([[0.5, 0.0]]))


@pytest.mark.parametrize("bad", [{"share": 1.5}, {"least": -0.1}, {"enough": 2}, {"captions_per_view": 0}])
def test_constants_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError):
        Presence(**bad)
