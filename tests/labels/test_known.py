"""Labels as people type them are read as the labels that the library knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltta import LabelSet, Tagger
from mltta.labels import BUILT_IN, with_known_words

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_labels_stay_what_they_are(name):
    labels = LabelSet.load(name)
    assert with_known_words(labels).texts == labels.texts


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("dogs", "dog"), ("The Dog", "dog"), ("a dog", "dog"), ("two dogs", "dog"), ("3 dogs", "dog"),
        ("cherries", "cherry"), ("knives", "knife"), ("buses", "bus"), ("potted plants", "potted plant"),
        ("grape", "grapes"),
        ("some people", "person"), ("the glass house", "the glass house"), ("axolotls", "axolotls"), ("two", "two"),
        ("orange", "orange"), ("brown dog", "brown dog"),
    ],
)  # fmt: skip
def test_articles_counts_and_number_change_nothing_but_the_name(typed, text):
    found = with_known_words(LabelSet.of([typed]))
    assert found.names == (typed,)
    assert found.texts == (text,)
    assert text != "dog" or found.synonyms == with_known_words(LabelSet.of(["dog"])).synonyms


def test_a_coloured_thing_has_the_thing_for_its_first_synonym():
    found = with_known_words(LabelSet.of(["two red buses", "red panda", "black hole"]))
    assert found.synonyms[0][0] == "bus"
    assert found.synonyms[1:] == ((), ())


def test_two_labels_never_become_one():
    found = with_known_words(LabelSet.of(["dog", "dogs", "the dog", "brown dog"]))
    assert found.texts == ("dog", "dogs", "the dog", "brown dog")
    assert "dog" not in found.synonyms[3], "it is a label of its own"


def test_the_answer_is_that_of_the_plain_label():
    scores = []
    for labels in (["dog", "sofa"], ["the dogs", "a sofa"], ["two dogs", "sofas"]):
        tags = Tagger(labels=labels)(PHOTOS / "dogs.jpg")
        scores.append([item["score"] for item in tags.top()])
    assert scores[0] == scores[1] == scores[2]
    (brown,) = (item["score"] for item in Tagger(labels=["brown dog", "sofa"])(PHOTOS / "dogs.jpg").top(1))
    assert brown > 0.5 * scores[0][0]
