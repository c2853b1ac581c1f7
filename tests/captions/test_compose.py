"""Claims about sentences composed by rule."""

from __future__ import annotations

import pytest

from mltta.captions.compose import compose_captions, with_article
from mltta.captions.nouns import NounFilter
from mltta.labels import LabelSet


@pytest.mark.parametrize("name", ["voc", "coco", "nuswide"])
def test_a_sentence_names_exactly_the_labels_it_is_returned_with(name: str) -> None:
    labels = LabelSet.load(name)
    nouns = NounFilter(labels)
    for sentence, named in compose_captions(labels, range(len(labels)), per_label=12):
        assert sorted(nouns(sentence)) == sorted(named), sentence


def test_sentences_are_short_capitalised_and_unique() -> None:
    labels = LabelSet.load("coco")
    sentences = [s for s, _ in compose_captions(labels, range(80), per_label=30)]
    assert len(sentences) == len(set(sentences)) == 80 * 30
    assert max(len(s.split()) for s in sentences) < 15
    assert all(s[0].isupper() and s.endswith(".") for s in sentences)


def test_single_label_sentences_come_first_then_one_to_three_partners() -> None:
    labels = LabelSet.load("coco")
    sizes = [len(named) for _, named in compose_captions(labels, [labels.index("dog")], per_label=9)]
    assert sizes == [1, 1, 1, 2, 3, 4, 2, 3, 4]


def test_wanted_label_is_named_first_and_only_wanted_labels_get_sentences() -> None:
    labels = LabelSet.of("dog, cat, car, tree")
    assert [named[0] for _, named in compose_captions(labels, [2, 0], per_label=3)] == [2, 2, 2, 0, 0, 0]


def test_order_of_the_labels_does_not_matter() -> None:
    texts = list(LabelSet.load("coco").texts)
    forward, backward = LabelSet.of(texts), LabelSet.of(texts[::-1])
    one = compose_captions(forward, [forward.index("dog")], 20)
    other = compose_captions(backward, [backward.index("dog")], 20)
    assert [s for s, _ in one] == [s for s, _ in other]
    for (_, a), (_, b) in zip(one, other, strict=True):
        assert [forward.texts[i] for i in a] == [backward.texts[i] for i in b]


def test_a_label_keeps_its_sentences_whatever_else_is_wanted() -> None:
    labels = LabelSet.load("voc")
    assert compose_captions(labels, [3], 8) == compose_captions(labels, [1, 3], 8)[8:]


def test_the_seed_decides() -> None:
    labels = LabelSet.load("voc")
    assert compose_captions(labels, [0, 5], 10, seed=4) == compose_captions(labels, [0, 5], 10, seed=4)
    assert compose_captions(labels, [0, 5], 10, seed=4) != compose_captions(labels, [0, 5], 10, seed=5)


def test_one_label_gives_as_many_sentences_as_asked_and_repeats_only_when_it_must() -> None:
    captions = compose_captions(LabelSet.of("dog"), [0], 400)
    assert len(captions) == 400
    sentences = [s for s, _ in captions]
    assert len(set(sentences[:60])) == 60
    assert {named for _, named in captions} == {(0,)}


def test_a_thousand_labels() -> None:
    labels = LabelSet.of([f"thing {i}" for i in range(1000)])
    captions = compose_captions(labels, range(1000), 6)
    assert len({s for s, _ in captions}) == 6000
    assert all(len(set(named)) == len(named) for _, named in captions)
    assert all(labels.texts[i] in s for s, named in captions for i in named)


def test_long_labels_take_fewer_partners_rather_than_too_many_words() -> None:
    labels = LabelSet.of(
        [f"very old {c} tower of the northern town" for c in ("red", "green", "grey", "blue")]
    )
    for sentence, named in compose_captions(labels, range(4), 9):
        assert len(sentence.split()) < 15
        assert sentence.count("tower") == len(named)


def test_words_around_the_labels_never_name_a_label_of_the_set() -> None:
    labels = LabelSet.of("dog, photo, morning, light, frame")
    for sentence, named in compose_captions(labels, [0], 60):
        assert ("photo" in sentence) == (1 in named)
        assert ("morning" in sentence) == (2 in named)


def test_no_sentence_is_asked_for() -> None:
    assert compose_captions(LabelSet.load("voc"), [], 5) == []
    assert compose_captions(LabelSet.load("voc"), [0], 0) == []


@pytest.mark.parametrize(
    "expected",
    [
        "a dog",
        "an apple",
        "an umbrella",
        "a unicorn",
        "an hour glass",
        "a European bison",
        "an SUV",
        "an école",
        "birds",
        "skis",
        "scissors",
        "women",
        "broccoli",
        "ice cream",
        "the sky",
        "a sky lantern",
        "a bus",
        "собака",
        "狗",
    ],
)
def test_articles(expected: str) -> None:
    article, _, noun = expected.partition(" ")
    text = noun if article in ("a", "an", "the") else expected
    assert with_article(text) == expected
