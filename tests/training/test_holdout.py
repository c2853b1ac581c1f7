"""What the measures on images kept out ask for, and how they count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from training.holdout import _percent, chosen, sample_labels
from training.material import Material, Split

NOUNS = ["human", "animal", "person", "dog", "tree", "sofa", "wall"]


def test_the_same_images_are_kept_out_every_time_and_never_learned_from() -> None:
    first, second = (Split.of(20, 10, 6, 4, np.full(5, 0.2)) for _ in range(2))
    assert first.kept_flickr.tolist() == second.kept_flickr.tolist()
    everything = np.concatenate([first.flickr, first.kept_flickr, first.samples, first.kept_samples])
    assert sorted(everything) == list(range(30))
    assert len(first.kept_flickr) == 6
    assert min(first.kept_samples) >= 20  # ImageNet's rows follow Flickr8k's
    assert first.labeled.tolist() == [30, 31, 32, 33, 34]


def test_a_batch_has_the_shares_of_the_recipe_and_captioned_images_only_once() -> None:
    split = Split.of(20, 10, 0, 0, np.array([0.0, 0.5, 0.5]))
    flickr, others = split.drawn(20, 0.1, 0.3, np.random.default_rng(0))
    assert len(set(flickr)) == len(flickr) == 12
    assert [int(((others >= low) & (others < high)).sum()) for low, high in ((20, 30), (30, 33))] == [2, 6]
    assert 30 not in others


def test_nouns_asked_for_are_frequent_and_go_together_and_person_and_dog_come_first() -> None:
    labels = np.zeros((20, 7), np.int8)
    labels[:12, [0, 2]] = 1  # human, person
    labels[:9, [1]] = 1  # animal
    labels[:8, [3]] = 1  # dog
    labels[5:11, [4]] = 1  # tree
    labels[:4, [5]] = 1  # sofa: too seldom
    sentences = SimpleNamespace(similarity=np.eye(7, dtype=np.float32))
    material = cast(Material, cast(Any, SimpleNamespace(nouns=NOUNS, sentences=sentences)))
    assert [NOUNS[i] for i in chosen(material, labels)] == ["person", "dog", "tree"]


def test_of_words_that_classes_cover_only_in_part_absence_is_unknown() -> None:
    labels = sample_labels(NOUNS, np.array([207, 831]))  # a golden retriever, a studio couch
    assert labels[0].tolist() == [-1, 1, -1, 1, 0, 0, -1]
    assert labels[1, 5] == 1


def test_percent_leaves_out_what_is_unknown_and_labels_without_positives() -> None:
    scores = torch.tensor([[0.9, 0.5], [0.8, 0.4], [0.3, 0.3], [0.1, 0.2]])
    labels = np.array([[1, 0], [-1, 0], [0, 0], [1, 0]], np.int8)
    assert _percent(scores, labels) == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert _percent(scores[:, :0], labels[:, :0]) == 0
