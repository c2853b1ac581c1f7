"""The tree of the default list, and which of its labels are shown together."""

from __future__ import annotations

import numpy as np
import pytest

from mltta import LabelSet
from mltta.decision import SUBJECT_FROM, Decision
from mltta.labels.branches import Branches
from mltta.labels.tree import everyday_tree, node_of, parse

TREE = parse(
    "[things]\nanimal: cat, dog\ndog = poodle, pug\nteddy bear, bear\n[places]\npark, field\npark ~ field"
)
NAMES = ("animal", "cat", "dog", "poodle", "pug", "bear", "teddy bear", "park", "field", "couch")


def shown(tree=TREE, **scores: float) -> set[str]:
    """The labels shown of those that score at least 0.3."""
    branches = Branches(NAMES, tree)
    score = np.float32([[scores.get(name.replace(" ", "_"), 0.0) for name in NAMES]])
    return {NAMES[i] for i in np.flatnonzero(Decision().shown(score, branches)[0])}


def test_the_words_of_the_tree_are_the_default_list():
    everyday = LabelSet.load("everyday")
    assert everyday.names == everyday.texts
    assert set(everyday.names) == set(everyday_tree().sections)


def test_every_word_asked_for_most_often_is_a_label():
    names = set(LabelSet.load("everyday").names)
    assert {"person", "woman", "man", "child", "boy", "girl", "table", "indoor", "outdoor", "animal"} <= names


def test_no_word_is_above_itself():
    tree = everyday_tree()
    for word in tree.sections:
        above = tree.above(word)
        assert word not in above
        assert len(set(above)) == len(above) < 5
        assert all(word in tree.below(one) for one in above)


def test_objects_places_and_materials_are_separate():
    tree = everyday_tree()
    assert {"things", "places", "activities", "materials", "pictures"} <= set(tree.sections.values())
    assert all(tree.sections[word] == tree.sections[parent] for word, parent in tree.parents.items())


def test_a_word_twice_is_refused():
    with pytest.raises(ValueError, match="'dog' is in the tree twice"):
        parse("animal: dog\npet: dog")


def test_a_label_finds_its_word_by_a_synonym():
    assert node_of(("settee", "couch")) == "couch"
    assert node_of(("zorblewock",)) is None


def test_the_most_specific_label_is_shown_with_its_parent():
    assert shown(animal=0.9, dog=0.9, poodle=0.8) == {"dog", "poodle"}
    assert shown(animal=0.9, dog=0.9) == {"animal", "dog"}
    assert shown(animal=0.9) == {"animal"}


def test_different_animals_are_both_shown_but_one_kind_of_dog():
    assert shown(animal=0.9, dog=0.9, cat=0.8) == {"animal", "cat", "dog"}
    assert shown(animal=0.9, dog=0.9, pug=0.5, poodle=0.6) == {"dog", "poodle"}


def test_near_duplicates_are_not_shown_together():
    assert shown(park=0.5, field=0.6) == {"field"}
    assert shown(bear=0.5, teddy_bear=0.8, couch=0.4) == {"teddy bear", "couch"}


def test_the_main_subject_is_named_by_its_parent_if_no_label_is_confident():
    assert shown(dog=0.2, cat=0.15, animal=0.2) == {"animal"}
    assert shown(couch=0.2) == {"couch"}
    assert shown(couch=SUBJECT_FROM - 0.01) == set()


def test_labels_without_a_tree_are_never_suppressed():
    score = np.float32([[0.9] * len(NAMES)])
    assert Decision().shown(score).all()


def test_the_number_of_labels_is_limited_after_near_duplicates_are_gone():
    score = np.zeros((1, len(NAMES)), np.float32)
    score[0, [NAMES.index(name) for name in ("park", "field", "couch")]] = 0.9, 0.8, 0.5
    found = Decision(threshold=0.3, top_k=2).shown(score, Branches(NAMES, TREE))[0]
    assert {NAMES[i] for i in np.flatnonzero(found)} == {"park", "couch"}
