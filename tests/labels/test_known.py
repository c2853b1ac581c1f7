"""Labels as people type them are read as the labels that the library knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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


KNOWN = """dog, tvmonitor, tv monitor, TV, people, person, sofa, couch, puma, cat, kitty, grape, grapes, glasses, bus,
pottedplant, potted plant, diningtable, red panda, black hole, zebu""".replace("\n", " ").split(", ")
#: what people type: known labels, their synonyms and others, in any number, behind articles, counts and colours
TYPED = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "", "", "the ", "a ", "two ", "some ", "red ", "two red ", "3 "]),
    st.sampled_from(KNOWN),
    st.sampled_from(["", "", "s"]),
)


@example(["tvmonitors", "the tvmonitor"])
@given(st.lists(TYPED, min_size=1, max_size=8, unique_by=lambda name: name.casefold()))
def test_what_is_known_is_added_once_however_often_it_is_asked_for(names):
    """Of "tvmonitors, the tvmonitor" the second pass read both as the same thing."""
    once = with_known_words(LabelSet.of(names))
    assert with_known_words(once) == once


def test_published_lists_are_official_and_typed_ones_are_not():
    assert all(LabelSet.load(name).official for name in BUILT_IN)
    assert not LabelSet.of(list(LabelSet.load("voc").names)).official


def test_the_answer_is_that_of_the_plain_label():
    scores = []
    for labels in (["dog", "sofa"], ["the dogs", "a sofa"], ["two dogs", "sofas"]):
        tags = Tagger(labels=labels)(PHOTOS / "dogs.jpg")
        scores.append([item["score"] for item in tags.top()])
    assert scores[0] == scores[1] == scores[2]
    (brown,) = (item["score"] for item in Tagger(labels=["brown dog", "sofa"])(PHOTOS / "dogs.jpg").top(1))
    assert brown > 0.5 * scores[0][0]
