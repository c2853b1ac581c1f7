"""What the labels of a source mean in the vocabulary: which names hold of a photo, and which do not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from training.noun_words import IMPLIES, MAYBE, PEOPLE
from training.nouns import key_of, vocabulary
from training.sources import SHOW_PEOPLE, Source

EVERYDAY = Path(__file__).parents[1] / "src/mltta/assets/labels/everyday.json"


def everyday() -> list[str]:
    """The names of the everyday labels."""
    return [label["name"] for label in json.loads(EVERYDAY.read_text(encoding="utf-8"))]


@cache
def names() -> dict[str, str]:
    """The vocabulary's name for each word, by the word's key: everyday labels, their synonyms, nouns."""
    everyday = json.loads(EVERYDAY.read_text(encoding="utf-8"))
    found = {key_of(noun): noun for noun in vocabulary([], [], [])}
    for label in reversed(everyday):  # of two labels with one synonym the first has it
        found.update((key_of(synonym), label["name"]) for synonym in label["synonyms"])
    return found | {key_of(label["name"]): label["name"] for label in everyday}


@cache
def _implied() -> dict[str, tuple[str, ...]]:
    return {key_of(word): words for word, words in IMPLIES.items()}


@cache
def _maybe() -> dict[str, tuple[str, ...]]:
    return {key_of(word): words for word, words in MAYBE.items()}


def name_of(term: str) -> str:
    """The vocabulary's name of a term, or the term itself if it has none."""
    name = names().get(key_of(term), term)
    return term if name in _maybe().get(key_of(term), ()) else name  # a table may be a dining table


@cache
def meaning(term: str) -> frozenset[str]:
    """All names that hold where a term does: its own, the vocabulary's, and what they imply."""
    found: set[str] = set()
    ahead = [term, name_of(term)]
    while ahead:
        word = ahead.pop()
        if word not in found:
            found.add(word)
            ahead += _implied().get(key_of(word), ())
    return frozenset(found)


def labels(terms: Iterable[str]) -> frozenset[str]:
    """All names that hold of a photo with some terms."""
    return frozenset(name for term in terms for name in meaning(term))


def annotated(source: Source) -> frozenset[str]:
    """The names of which a source says for each of its photos whether they hold.

    Names of people are among them only if each photo has all its labels, and people are not its usual subject.
    """
    if source.absent == "none":
        return frozenset()
    known = _all_labels(tuple(source.photos.values()))
    people = source.absent == "all" and source.group not in SHOW_PEOPLE
    return known if people else known - PEOPLE - {"human"}


@cache
def _all_labels(photos: tuple[str, ...]) -> frozenset[str]:
    return labels(term for given in set(photos) for term in given.split("|"))


def unknown(source: Source, terms: Sequence[str]) -> frozenset[str]:
    """Annotated names that neither hold of a photo nor are absent from it.

    These are narrower than what the photo is known to show: a folder "bird" may contain owls.
    """
    given = terms if source.absent == "all" else terms[:1]
    main = {name for term in given for name in (term, name_of(term))}
    narrower = {
        name for name, broad in _broader(tuple(source.photos.values()), source.absent) if broad & main
    }
    hinted = {word for term in terms for word in _maybe().get(key_of(term), ())}
    return frozenset((narrower | hinted) & annotated(source) - labels(terms))


@cache
def _broader(photos: tuple[str, ...], absent: str) -> list[tuple[str, frozenset[str]]]:
    """The names of a source and what each implies, by the vocabulary and by the source's own terms."""
    found: dict[str, frozenset[str]] = {}
    for terms in {tuple(given.split("|")) for given in photos}:
        for name in labels(terms):
            first = absent == "classes" and name in (terms[0], name_of(terms[0]))
            broad = labels(terms) if first else meaning(name)
            found[name] = found.get(name, frozenset()) | broad - {name}
    return sorted(found.items())
