"""The quality report counts what a reader would count."""

from __future__ import annotations

import json

from mltta.captions.nouns import quality
from mltta.labels import LabelSet

TEXTS = ["A dog.", "Two dogs and a cat.", "The sky.", "A kitty with a dog and another dog.", "Clouds."]


def test_captions_a_label_and_labels_a_caption() -> None:
    found = quality(TEXTS, LabelSet.of({"cat": ["kitty"], "dog": [], "cow": []}))
    assert found.counts == (2, 3, 0)  # a caption that names a label twice counts once
    assert found.sizes == (2, 1, 2)
    assert found.never == ["cow"]


def test_as_json_labels_go_from_the_most_to_the_least_mentioned() -> None:
    said = json.loads(
        json.dumps(quality(TEXTS, LabelSet.of({"cat": ["kitty"], "dog": [], "cow": []})).to_dict())
    )
    assert said == {
        "captions": 5,
        "labels": 3,
        "captions_per_label": {"min": 0, "median": 2, "max": 3},
        "labels_per_caption": {"0": 2, "1": 1, "2": 2},
        "never_mentioned": ["cow"],
        "by_label": {"dog": 3, "cat": 2, "cow": 0},
    }
    assert list(said["by_label"]) == ["dog", "cat", "cow"]
