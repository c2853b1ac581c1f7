"""Boolean queries over labels."""

from __future__ import annotations

import numpy as np
import pytest

from mltta.errors import ConfigError, LabelError
from mltta.labels import LabelSet
from mltta.library.query import parse

LABELS = LabelSet.of(["dog", "beach", "person", "dining table", "salt and pepper"])
#: photos by labels
SCORES = np.array(
    [[0.9, 0.8, 0.1, 0, 0], [0.9, 0.1, 0.9, 0, 0], [0.1, 0.9, 0.9, 0.6, 0], [0, 0, 0, 0, 0.7]], np.float32
)


@pytest.mark.parametrize(
    ("text", "photos"),
    [
        ("dog", [0, 1]),
        ("DOG and beach not person", [0]),
        ("dog and beach and not person", [0]),
        ("dog or beach", [0, 1, 2]),
        ("dog or beach and person", [0, 1, 2]),
        ("(dog or beach) and person", [1, 2]),
        ("not (dog or beach)", [3]),
        ("not not dog", [0, 1]),
        ("dining table (beach)", [2]),
        ('"salt and pepper" or dining_table', [2, 3]),
    ],
)
def test_a_query_finds_what_it_says(text, photos):
    assert np.flatnonzero(parse(text, LABELS).matches(SCORES, 0.5)).tolist() == photos


def test_photos_are_ranked_by_the_worst_of_and_and_the_best_of_or():
    assert parse("dog and beach", LABELS).evaluate(SCORES).tolist() == pytest.approx([0.8, 0.1, 0.1, 0])
    assert parse("dog or not person", LABELS).evaluate(SCORES).tolist() == pytest.approx([0.9, 0.9, 0.1, 1])


@pytest.mark.parametrize("text", ["", "dog and", "and dog", "(dog", "dog)", "not", "()", "(" * 200 + "dog"])
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(ConfigError, match="cannot read the query"):
        parse(text, LABELS)


def test_an_unknown_label_gets_a_suggestion():
    with pytest.raises(LabelError, match="Did you mean 'dog'"):
        parse("beach and dgo", LABELS)
