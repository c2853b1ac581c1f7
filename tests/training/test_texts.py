"""Words: wordings of labels, lists that go together, sentences of labels, recipes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from training.label_sentences import LabelSentences
from training.lists import Lists
from training.recipe import Recipe, named
from training.windows import CELL
from training.wording import NEAR, PLAIN, SAME, SIMPLE, plural, wordings


@pytest.mark.parametrize(
    ("noun", "many"),
    [("dog", "dogs"), ("bus", "bus"), ("wine glass", "wine glasses"), ("puppy", "puppies"), ("toy", "toys"),
     ("policewoman", "policewomen"), ("sheep", "sheep"), ("knife", "knives"), ("bench", "benches")],
)  # fmt: skip
def test_plurals(noun: str, many: str) -> None:
    assert plural(noun) == many


def test_wordings_lean_on_the_plain_prompt_and_cover_articles_plurals_colours_and_numbers() -> None:
    found = {w.text: w for w in wordings("car", random.Random(0))}
    assert {w.plain for w in found.values()} == {PLAIN.format("car")}
    assert found["the car"].share == found["a photo of a cars."].share == SAME
    assert all(found[t.format("car")].share == NEAR for t in SIMPLE)
    assert "car" not in found
    assert len(found) > 20


def test_lists_never_hold_two_labels_of_which_one_implies_the_other_or_that_mean_the_same() -> None:
    nouns = ["person", "man", "dog", "animal", "cup", "mug", "sofa", "cloud"]
    similarity = np.eye(8, dtype=np.float32)
    similarity[4, 5] = similarity[5, 4] = 0.9
    lists = Lists(nouns, np.array([1.0, 1, 1, 1, 1, 1, 1, 0]), similarity)
    rng, with_person = np.random.default_rng(0), 0
    for _ in range(200):
        drawn = {nouns[i] for i in lists.draw(5, rng)}
        assert not {"person", "man"} <= drawn
        assert not {"dog", "animal"} <= drawn
        assert not {"cup", "mug"} <= drawn
        assert "cloud" not in drawn  # its weight is 0
        with_person += "person" in drawn
    assert with_person > 140


def test_a_list_is_as_long_as_asked_for_if_there_are_enough() -> None:
    lists = Lists([f"thing {i}" for i in range(30)], np.ones(30), np.eye(30, dtype=np.float32))
    assert len(set(lists.draw(12, np.random.default_rng(0)).tolist())) == 12


def test_a_label_sentence_names_what_its_picture_shows_and_fits_all_that_show_it() -> None:
    sentences = LabelSentences([[100], [101], [102]], [[0], [1], [2]], np.ones(3))
    shown = np.array([[True, True, False], [True, False, False], [True, True, True], [False, False, False]])
    ids, fits = sentences.draw(shown, np.random.default_rng(0))
    for j, own in enumerate(ids[:3]):
        assert own[0] == 100
        assert own[-1] == 102
        names = {t for t in own if t < 100}
        assert 1 <= len(names) <= 2
        for i in range(4):
            assert fits[i, j] == all(shown[i, n] for n in names)
        assert fits[j, j]
    assert not fits[:, 3].any()  # a picture that shows nothing has no sentence


def test_recipes_are_written_as_a_name_and_settings() -> None:
    name, recipe = named("b:lr_image=2e-4,steps=10,layouts=2x2/1x2,sizes=320", Recipe())
    assert name == "b"
    assert recipe.lr_image == 2e-4
    assert recipe.steps == 10
    assert recipe.layouts == ((2, 2), (1, 2))
    assert recipe.sizes == (320,)
    assert recipe.lr == Recipe().lr


def test_a_setting_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match="'speed=3' is not a setting; choose from seed"):
        Recipe().changed("speed=3")


def test_every_size_can_be_cut_into_parts_of_whole_locations() -> None:
    recipe = Recipe()
    for size in recipe.sizes:
        cells = size // CELL
        assert size % CELL == 0
        assert any(cells % down == cells % across == 0 for down, across in recipe.layouts)
