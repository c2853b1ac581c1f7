"""Sentences about labels without a language model: short, plain, and labelled by construction."""

from __future__ import annotations

import hashlib
import json
import random
import re
import unicodedata
from collections.abc import Sequence

from mltta.captions.nouns import ENGLISH, NounFilter
from mltta.labels import LabelSet
from mltta.labels.known import singular
from mltta.labels.sets import ASSETS

MAX_WORDS = 14  # the paper asks for sentences of less than 15 words

# No sentence has a finite verb, so singular, plural and mass nouns fit alike. Lists are tried in random order.
_TEMPLATES = json.loads((ASSETS / "captions" / "templates.json").read_text(encoding="utf-8"))
_LEADS, _TAILS = _TEMPLATES["leads"], _TEMPLATES["tails"]
_SCENES: dict[int, list[str]] = {int(count): patterns for count, patterns in _TEMPLATES["scenes"].items()}

_AN = re.compile(
    r"(?!uni(?!n)|use|usu|ute|eu|ewe|one\b|once|ufo)[aeiou]|hour|heir|honest|honou?r|suv\b|x-?ray"
)


class Composer:
    """Writes sentences about given labels, in words that name no other label of the set."""

    def __init__(self, labels: LabelSet) -> None:
        nouns = NounFilter(labels)
        self._leads = [lead for lead in _LEADS if not nouns(lead)] or [""]
        self._tails = [tail for tail in _TAILS if not nouns(tail)] or [""]

    def __call__(self, named: Sequence[str], rng: random.Random) -> str:
        """Write one sentence about the first of the labels, at most four and as many as fit, with more around them."""
        named = named[: _fitting(named)]
        patterns = _SCENES[len(named)]
        pattern = rng.choice(patterns)
        scene = _scene(pattern, named)
        if len(scene.split()) > MAX_WORDS:
            scene = _scene(patterns[0], named)
        lead, tail = rng.choice(self._leads), rng.choice(self._tails)
        if pattern.endswith(("behind", "side by side")):
            tail = ""  # one place is enough
        wholes = [around.strip().replace("{}", scene) for around in (f"{lead or '{}'} {tail}", lead or "{}")]
        scene = next((whole for whole in wholes if len(whole.split()) <= MAX_WORDS), scene)
        return scene[0].upper() + scene[1:] + "."


def compose_captions(
    labels: LabelSet, wanted: Sequence[int], per_label: int, seed: int = 0
) -> list[tuple[str, tuple[int, ...]]]:
    """Write per_label sentences for each wanted label: a third about it alone, then with one to three others.

    What is written about a label depends on the seed and on the set of label texts, not on their order.

    Returns:
        Pairs of a sentence and the labels it names, the wanted label first.
    """
    index = {text: i for i, text in reversed(list(enumerate(labels.texts)))}
    texts = sorted(index)
    compose = Composer(labels)
    composed = []
    for i in wanted:
        key = hashlib.blake2b(f"{seed}\0{labels.texts[i]}".encode(), digest_size=8).digest()
        rng = random.Random(int.from_bytes(key, "big"))
        for sentence, named in _about(labels.texts[i], texts, compose, per_label, rng):
            composed.append((sentence, (i, *(index[text] for text in named[1:]))))
    return composed


def _about(
    text: str, texts: list[str], compose: Composer, count: int, rng: random.Random
) -> list[tuple[str, list[str]]]:
    """Write count sentences about one label, each with the label texts it names."""
    written: dict[str, list[str]] = {}
    repeats: list[tuple[str, list[str]]] = []
    alone = -(-count // 3)
    misses = 0
    while len(written) + len(repeats) < count:
        done = len(written) + len(repeats)
        partners = 0 if done < alone and misses < 50 else (done - alone) % 3 + 1
        # One more is drawn, for the case that the label itself is among them.
        drawn = rng.sample(texts, min(partners + 1, len(texts)))
        named = [text, *[other for other in drawn if other != text][:partners]]
        sentence = compose(named, rng)
        named = named[: _fitting(named)]
        if sentence not in written:
            written[sentence] = named
            misses = 0
        elif misses < 200:
            misses += 1
        else:  # few labels and many sentences: all that can be said has been said
            repeats.append((sentence, named))
    return [*written.items(), *repeats]


def _fitting(named: Sequence[str]) -> int:
    """Return how many of the labels fit into one sentence, at least the first."""
    sizes = range(min(len(named), max(_SCENES)), 1, -1)
    return next((n for n in sizes if len(_scene(_SCENES[n][0], named[:n]).split()) <= MAX_WORDS), 1)


def _scene(pattern: str, named: Sequence[str]) -> str:
    return pattern.format(*map(with_article, named))


def with_article(text: str) -> str:
    """Put a, an or the before a noun, and nothing before plurals, mass nouns, and scripts without articles."""
    words = unicodedata.normalize("NFKD", text).casefold().split()
    first, last = words[0], words[-1]
    if last in ENGLISH.the and len(words) == 1:
        return f"the {text}"
    if last in ENGLISH.no_article or singular(last) != last or not first[0].isascii():
        return text
    return f"an {text}" if _AN.match(first) else f"a {text}"
