"""Claims about the sentence in an answer."""

from __future__ import annotations

import pytest

from mltta.captions.generate.build import rejection, tidy
from mltta.captions.nouns import NounFilter
from mltta.labels import LabelSet

DOG = "A dog sleeps on a sofa."


@pytest.mark.parametrize(
    "answer",
    [
        DOG,
        f"  {DOG}\n\n",
        f'"{DOG}"',
        f"“{DOG}”",
        f"Sure! {DOG}",
        f"Sure, here is a sentence: {DOG}",
        f"Sure! Here's a sentence that describes a photo with the keywords:\n\n{DOG}",
        f"Certainly! Here are some sentences with the keyword 'dog, sofa':\n1. {DOG}\n2. A cat.",
        f'Here is one: "{DOG}" This sentence has six words.',
        f"Of course. {DOG}",
        f"1. {DOG}",
        f"- {DOG}",
        f"**Sentence:** {DOG}",
        f"Sentence 1: {DOG}",
        f"1) Caption: *{DOG}*",
        f"Description: {DOG} The light is warm.",
        f"{DOG} It dreams.",
        f"<think>\nThe user wants a dog. A sofa too.\n</think>\n\n{DOG}",
        f"---\n{DOG}",
        f"I can make it like this: {DOG}",
        f"A: {DOG}",
        f'{DOG}"',
    ],
)
def test_one_sentence_is_left(answer: str) -> None:
    assert tidy(answer) == DOG


@pytest.mark.parametrize(
    "answer", ["", " \n", "Sure! Here is a sentence:", "<think> dogs, sofas", "***", '""']
)
def test_nothing_is_left_of_an_answer_without_a_sentence(answer: str) -> None:
    assert tidy(answer) == ""


@pytest.mark.parametrize(
    "sentence",
    [
        "Mr. Smith walks a St. Bernard near a 2.5 m sofa.",
        'A dog "reads" a book.',
        'A sofa called "dog"',
        "Here is a dog on a sofa.",
        "Two dogs, one sofa: a mess",
        "Greatest dog ever!",
        "3 dogs on a sofa.",
        "A photo of a dog's sofa.",
    ],
)
def test_a_plain_sentence_is_left_alone(sentence: str) -> None:
    assert tidy(sentence) == sentence


def test_a_caption_is_short_and_names_a_label() -> None:
    nouns = NounFilter(LabelSet.of("dog, sofa"))
    assert rejection(DOG, nouns) == ""
    assert rejection("", nouns) == "empty"
    assert rejection("A hot dog on a plate.", nouns) == "no label"
    assert rejection("dog" + " word" * 13, nouns) == ""
    assert rejection("dog" + " word" * 14, nouns) == "more than 14 words"
