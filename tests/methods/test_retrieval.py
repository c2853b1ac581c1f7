"""Label sets of several captions combined: by vote, by weighted vote, all that any names, what all name."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mltta.captions.labelled import LabelledCaptions
from mltta.methods.ml_tta import combined_labels

MENTIONS = [[0], [0, 1], [0, 1, 1], [2], [1, 2]]


def scene(n: int = 5) -> tuple[LabelledCaptions, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    captions = LabelledCaptions(F.normalize(torch.randn(5, 8), dim=-1), MENTIONS, 4)
    views = F.normalize(torch.randn(2, 3, 8), dim=-1)
    return captions, views, captions.nearest(views, n)


def naive(captions, view, found, how, scale) -> list[float]:
    """One view at a time, as the words say it."""
    sets = [set(MENTIONS[i]) for i in found.tolist()]
    similar = torch.stack([view @ captions.embeddings[i] for i in found]) * scale
    weights = {"vote": [1 / len(sets)] * len(sets), "weighted": similar.softmax(0).tolist()}.get(how)
    if how == "union":
        labels = set().union(*sets)
    elif how == "intersection":
        labels = set.intersection(*sets)
    elif how == "nearest":
        labels = sets[0]
    else:
        labels = {c for c in range(4) if sum(w for w, s in zip(weights, sets, strict=True) if c in s) >= 0.5}
    return [float(c in (labels or sets[0])) for c in range(4)]


@pytest.mark.parametrize("how", ["nearest", "vote", "weighted", "union", "intersection"])
@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_labels_are_those_of_a_naive_loop(how: str, n: int) -> None:
    captions, views, found = scene(n)
    got = combined_labels(captions, views, found, how, 10.0)
    want = [[naive(captions, views[b, v], found[b, v], how, 10.0) for v in range(3)] for b in range(2)]
    assert got.tolist() == want


def test_one_caption_is_the_nearest_whatever_the_rule() -> None:
    captions, views, found = scene(1)
    nearest = captions.multi_hot(found[..., 0])
    for how in ("vote", "weighted", "union", "intersection"):
        assert torch.equal(combined_labels(captions, views, found, how, 10.0), nearest)


def test_sets_grow_from_intersection_to_union() -> None:
    captions, views, found = scene(3)
    sizes = {h: combined_labels(captions, views, found, h, 10.0) for h in ("intersection", "vote", "union")}
    shared = captions.multi_hot(found).amin(-2)
    assert (shared <= sizes["vote"]).all()
    assert (sizes["vote"] <= sizes["union"]).all()


def test_the_mean_of_a_label_counts_each_caption_that_names_it_once(monkeypatch):
    torch.manual_seed(1)
    texts = F.normalize(torch.randn(5, 8), dim=-1)
    captions = LabelledCaptions(texts, MENTIONS, 5)  # no caption names the last one
    wanted = torch.zeros(5, 8)
    for text, labels in zip(texts, MENTIONS, strict=True):
        for label in set(labels):
            wanted[label] += text
    wanted = F.normalize(wanted, dim=-1)
    torch.testing.assert_close(captions.means, wanted)
    assert not captions.means[4].any()
    monkeypatch.setattr("mltta.captions.labelled.ROWS", 2)
    by_parts = LabelledCaptions(texts, MENTIONS, 5)
    torch.testing.assert_close(by_parts.means, captions.means)
