"""Which nouns are taught where, on cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.imagenet_words import WITHOUT_PEOPLE, coarse_indices
from training.supervision import NounSupervision, Targets, class_labels

NOUNS = ["person", "man", "dog", "horse", "chair", "frisbee", "wall"]
DOG, HORSE, CHAIR, TEAPOT, BALL = 207, 339, 559, 849, 805  # ImageNet classes
CPU = torch.device("cpu")


def captions() -> NDArray[np.int8]:
    """Twenty images: ten of a man, nine of a dog with a frisbee, one where "person" is left open."""
    labels = np.zeros((20, len(NOUNS)), np.int8)
    labels[:10, :2] = 1
    labels[10:19, [2, 5]] = 1
    labels[19, 0] = -1
    return labels


@pytest.fixture
def nouns() -> NounSupervision:
    return NounSupervision(NOUNS, captions(), [DOG, TEAPOT, BALL], CPU, weak=0.5, passed_over=0.5, least=5)


def sure_of(*classes: int, confidence: float = 0.9) -> torch.Tensor:
    """The classifier's probabilities, sure of one class each."""
    p = torch.full((len(classes), 1000), (1 - confidence) / 999)
    for row, c in enumerate(classes):
        p[row, c] = confidence
    return p


def known(targets: Targets, row: int) -> dict[str, tuple[float, float]]:
    pairs = zip(targets.value[row].tolist(), targets.known[row].tolist(), strict=True)
    return {noun: (round(v, 2), round(k, 2)) for noun, (v, k) in zip(NOUNS, pairs, strict=True)}


def test_people_and_dogs_that_no_caption_names_are_surely_not_there(nouns: NounSupervision) -> None:
    found = known(nouns(torch.tensor([10, 0]), sure_of(BALL, BALL)), 0)
    assert found["dog"] == (1, 1)
    assert found["person"] == (0, 1)
    assert found["man"] == (0, 1)
    assert known(nouns(torch.tensor([10, 0]), sure_of(BALL, BALL)), 1)["frisbee"] == (0, 0.5)  # weakly


def test_a_noun_that_captions_leave_open_is_not_taught(nouns: NounSupervision) -> None:
    assert known(nouns(torch.tensor([19]), sure_of(BALL)), 0)["person"][1] == 0


def test_photographs_of_things_without_people_deny_people_and_others_only_weakly(
    nouns: NounSupervision,
) -> None:
    assert TEAPOT in WITHOUT_PEOPLE
    assert BALL not in WITHOUT_PEOPLE
    teapot, ball = torch.tensor([21]), torch.tensor([22])
    assert known(nouns(teapot, sure_of(TEAPOT)), 0)["man"] == (0, 1)
    assert known(nouns(ball, sure_of(BALL)), 0)["man"] == (0, 0.25)


def test_what_the_classifier_is_sure_of_is_there_though_no_caption_names_it(nouns: NounSupervision) -> None:
    found = known(nouns(torch.tensor([0]), sure_of(HORSE)), 0)
    assert found["horse"] == (0.9, 1)
    assert found["man"] == (1, 1)


def test_a_small_thing_in_one_window_is_there_and_is_not_denied_by_the_whole(nouns: NounSupervision) -> None:
    whole, windows = sure_of(BALL), torch.stack([sure_of(BALL, CHAIR, BALL)[i] for i in range(3)])[None]
    assert known(nouns(torch.tensor([0]), whole, windows), 0)["chair"] == (0.9, 1)
    assert known(nouns(torch.tensor([0]), whole), 0)["chair"] == (0, 0.5)
    assert known(nouns(torch.tensor([0]), whole), 0)["horse"] == (0, 1)


def test_windows_affirm_what_they_show_and_deny_the_rest_unless_captions_name_it(
    nouns: NounSupervision,
) -> None:
    windows = sure_of(HORSE, BALL, confidence=0.8)[None].expand(2, -1, -1)
    placed = nouns.placed(torch.tensor([0, 10]), windows)  # a man, a dog
    column = {NOUNS[int(c)]: i for i, c in enumerate(nouns.columns)}
    assert placed.value[0, 0, column["horse"]].item() == pytest.approx(0.8)
    assert placed.known[0, 0, column["horse"]].item() == 1
    assert placed.value[0, 0, column["dog"]].item() == 0
    assert placed.known[0, 0, column["dog"]].item() == pytest.approx(0.64)  # the square of the confidence
    assert placed.known[1, 0, column["dog"]].item() == 0  # its captions name a dog
    assert placed.known[0, 0, column["wall"]].item() == 0  # ImageNet knows few walls


def test_a_noun_that_most_images_show_is_denied_as_much_as_it_is_affirmed() -> None:
    labels = captions()
    labels[:16, 0] = 1  # 16 of 20 images show a person
    labels[19, 0] = 0
    nouns = NounSupervision(NOUNS, labels, [DOG], CPU, least=5)
    weight = nouns.importance(Targets(torch.tensor([[1.0] * 7, [0.0] * 7]), torch.ones(2, 7)))
    assert (weight[1, 0] / weight[0, 0]).item() == pytest.approx(4)
    assert (weight[1, 5] / weight[0, 5]).item() == pytest.approx(1)


def test_composed_pictures_show_what_a_part_shows_and_parts_deny_what_only_another_shows() -> None:
    value = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    certain = torch.tensor([[1.0, 0.5, 0.5, 0], [0, 1.0, 1.0, 0.5]])
    members = torch.tensor([[0, 1]])
    both = Targets(value, certain).composed(members)
    assert both.value.tolist() == [[1, 1, 0, 0]]
    assert both.known.tolist() == [[1, 1, 0.5, 0]]
    apart = Targets(value, certain).apart(members)
    assert torch.equal(apart.value, value)
    assert apart.known.tolist() == [[1, 1, 0.5, 0], [0, 1, 1, 0.5]]  # unknown stays unknown


def test_class_labels_hold_what_an_everyday_word_implies() -> None:
    labels = class_labels(["dog", "animal", "car"], [DOG, CHAIR])
    assert labels.tolist() == [[1, 1, 0], [0, 0, 0]]


def test_coarse_words_know_classes_that_there_are() -> None:
    assert all(0 <= c < 1000 for classes in coarse_indices().values() for c in classes)
    assert all(0 <= c < 1000 for c in WITHOUT_PEOPLE)
