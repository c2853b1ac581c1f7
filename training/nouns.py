"""Multi-label noun supervision from human captions: which objects does a photo show?

A noun is positive if one of the image's captions names it (singular or plural) or implies it
(a puppy is a dog). It is unknown, and excluded from the loss, if a caption names something broader
("vehicle" leaves open whether there is a car) or hints at it (a restaurant has tables). Every other noun
is a weak negative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from training.imagenet_words import COARSE
from training.noun_words import AMBIGUOUS, CAPTION_NOUNS, EATING, IMPLIES, KEPT, MAYBE, PHRASES

_IRREGULAR = {
    "men": "man",
    "women": "woman",
    "children": "child",
    "people": "people",
    "feet": "foot",
    "teeth": "tooth",
    "mice": "mouse",
    "geese": "goose",
    "leaves": "leaf",
    "knives": "knife",
    "scarves": "scarf",
    "wolves": "wolf",
    "shelves": "shelf",
    "policemen": "policeman",
    "glasses": "glasses",
    "sunglasses": "sunglasses",
    "goggles": "goggles",
    "pants": "pants",
    "shorts": "shorts",
    "jeans": "jeans",
    "stairs": "stairs",
    "bus": "bus",
    "grass": "grass",
    "dress": "dress",
    "glass": "glass",
    "cross": "cross",
    "canvas": "canvas",
    "tennis": "tennis",
    "skis": "ski",
    "couches": "couch",
    "benches": "bench",
    "beaches": "beach",
    "woods": "woods",
    "pajamas": "pajamas",
    "scissors": "scissors",
    "binoculars": "binoculars",
    "gas": "gas",
    "bus stop": "bus stop",
    "this": "this",
    "is": "is",
    "his": "his",
    "movies": "movie",
    "cookies": "cookie",
    "headphones": "headphones",
    "series": "series",
    "calves": "calf",
    "dice": "dice",
    "chess": "chess",
}
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)?")


def singular(word: str) -> str:
    """The singular of an English noun by rule; other words are mostly unchanged."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def key_of(noun: str) -> str:
    """The lookup key of a noun: lower case, each word in the singular."""
    return " ".join(singular(w) for w in _WORD.findall(noun.lower()))


def grams(caption: str) -> set[str]:
    """All sequences of one to three words of a caption, in the singular."""
    words = [singular(w) for w in _WORD.findall(caption.lower())]
    return {" ".join(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1)}


def curated() -> list[str]:
    """The hand-picked nouns of `noun_words.py`, phrases first."""
    phrases = [p for p in re.split(r"[|\n]", PHRASES) if p.strip()]
    text = " ".join(CAPTION_NOUNS.split())
    for phrase in phrases:
        text = re.sub(rf"\b{re.escape(phrase)}\b", " ", text)
    return phrases + text.split()


def vocabulary(
    keywords: Iterable[str],
    lemmas: Iterable[str],
    captions: Iterable[str],
    others: Iterable[str] = (),
    at_least: int = 4,
) -> list[str]:
    """The nouns of the supervision: keywords, curated, coarse and other words, ImageNet names found in captions."""
    counts: dict[str, int] = {}
    for caption in captions:
        for gram in grams(caption):
            counts[gram] = counts.get(gram, 0) + 1
    nouns = dict.fromkeys(" ".join(k.split()) for k in keywords)
    nouns.update(dict.fromkeys(curated()))
    nouns.update(dict.fromkeys(COARSE))
    nouns.update(dict.fromkeys(others))
    seen = {key_of(n) for n in nouns}
    for lemma in lemmas:
        key = key_of(lemma)
        if key and key not in seen and lemma not in AMBIGUOUS and counts.get(key, 0) >= at_least:
            nouns[lemma] = None
            seen.add(key)
    return list(nouns)


class NounMatcher:
    """Finds the positive and the unknown nouns in an image's captions."""

    def __init__(self, nouns: list[str]) -> None:
        self.nouns = nouns
        self.index = {noun: i for i, noun in enumerate(nouns)}
        self.by_key: dict[str, list[int]] = {}
        for i, noun in enumerate(nouns):
            if noun not in AMBIGUOUS or noun in KEPT:
                self.by_key.setdefault(key_of(noun), []).append(i)
        self.implies = {
            key_of(w): [self.index[t] for t in ts if t in self.index] for w, ts in IMPLIES.items()
        }
        self.maybe = {key_of(w): [self.index[t] for t in ts if t in self.index] for w, ts in MAYBE.items()}
        # children[i]: the narrower nouns that a mention of noun i leaves open
        self.children: dict[str, list[int]] = {}
        for narrow, broad in IMPLIES.items():
            if narrow in self.index:
                for word in broad:
                    self.children.setdefault(key_of(word), []).append(self.index[narrow])

    def __call__(self, captions: Iterable[str]) -> tuple[set[int], set[int]]:
        """Indices of positive and of unknown nouns."""
        positive: set[int] = set()
        unknown: set[int] = set()
        for caption in captions:
            found = grams(caption)
            for gram in found:
                positive.update(self.by_key.get(gram, ()))
                positive.update(self.implies.get(gram, ()))
                unknown.update(self.maybe.get(gram, ()))
                unknown.update(self.children.get(gram, ()))
            if "table" in found and found & EATING and "dining table" in self.index:
                positive.add(self.index["dining table"])
        return positive, unknown - positive


def label_matrix(nouns: list[str], captions: list[list[str]]) -> np.ndarray:
    """Labels per image and noun as int8: 1 positive, 0 weak negative, -1 unknown."""
    matcher = NounMatcher(nouns)
    labels = np.zeros((len(captions), len(nouns)), np.int8)
    for row, texts in enumerate(captions):
        positive, unknown = matcher(texts)
        labels[row, list(unknown)] = -1
        labels[row, list(positive)] = 1
    return labels
