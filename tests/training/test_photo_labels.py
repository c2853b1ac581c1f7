"""What labeled photos say of nouns that their source does not mention, and what a model adds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from training import photo_labels
from training.labeled import Labeled
from training.supervision import NounSupervision

NOUNS = ["dog", "poodle", "cat", "couch", "sofa", "person", "accordion", "animal"]


def photo(
    terms: list[str], labels: list[str], source: str = "a/pets", unknown: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {"terms": terms, "labels": labels, "source": source, "also": [], "unknown": list(unknown)}


def read(facts: list[dict[str, Any]]) -> tuple[Any, Any]:
    annotates = {"a/pets": frozenset({"dog", "cat", "animal"}), "b/rooms": frozenset()}
    similarity = np.eye(len(NOUNS), dtype=np.float32)
    similarity[3, 4] = similarity[4, 3] = 0.9  # couch and sofa
    captions = np.zeros((100, len(NOUNS)), np.int8)
    captions[:40, 5] = 1  # people are in many photos
    photos = Labeled(facts, [b""] * len(facts), annotates, frozenset())
    return photo_labels.read(photos, NOUNS, similarity, captions, 0.25)


def test_what_a_source_does_not_mention_is_weakly_absent_unless_it_may_hold() -> None:
    facts = [photo(["dog", "animal"], ["dog", "animal"]), photo(["couch"], ["couch"], "b/rooms")]
    labels, certain = read(facts)
    dog = dict(zip(NOUNS, zip(labels[0].tolist(), certain[0].tolist(), strict=True), strict=True))
    assert dog["dog"] == dog["animal"] == (1, 1.0)
    assert dog["cat"][0] == 0
    assert dog["cat"][1] > 0.7, "annotated"
    assert dog["poodle"] == (-1, 0.0), "the dog may be one"
    assert dog["person"] == (-1, 0.0), "often there, seldom said"
    assert dog["accordion"] == (0, 0.25)
    couch = dict(zip(NOUNS, labels[1].tolist(), strict=True))
    assert couch["sofa"] == -1, "means the same"
    assert couch["dog"] == 0


def test_rare_labels_are_drawn_more_often() -> None:
    labels = np.array([[1, 0], [1, 0], [1, 0], [1, 1]], np.int8)
    shares = photo_labels.shares(labels)
    assert np.isclose(shares.sum(), 1)
    assert np.isclose(shares[3] / shares[0], 2)  # one photo, four photos


def test_a_model_adds_what_it_is_sure_of_and_opens_what_it_is_unsure_of() -> None:
    labels, certain = read([photo(["dog", "animal"], ["dog", "animal"])])
    captions = np.zeros((1, len(NOUNS)), np.int8)
    found = NounSupervision(NOUNS, captions, [], torch.device("cpu"), (labels, certain), least=0)
    p = torch.full((2, len(NOUNS)), 0.01)
    p[:, NOUNS.index("cat")] = p[:, NOUNS.index("person")] = 0.9
    p[:, NOUNS.index("accordion")] = 0.5
    assert found.relabel(torch.tensor([0, 1]), p) == 1
    now = dict(zip(NOUNS, found.labels[1].tolist(), strict=True))
    assert now["person"] == 1
    assert now["cat"] == 0, "the source says that it is absent"
    assert now["accordion"] == -1
    assert found.certain[1, NOUNS.index("accordion")] == 0
    assert found.labels[0, NOUNS.index("person")] != 1, "captions name what matters"
