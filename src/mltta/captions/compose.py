"""Template-based sentences about labels, without a language model: short, plain, and labelled by construction."""

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

MAX_WORDS = 14  # the paper requires fewer than 15 words

# No sentence has a finite verb, so that singular, plural and mass nouns all fit. Lists are tried in random order.
_TEMPLATES = json.loads((ASSETS / "captions" / "templates.json").read_text(encoding="utf-8"))
_LEADS, _TAILS = _TEMPLATES["leads"], _TEMPLATES["tails"]
_SCENES: dict[int, list[str]] = {int(count): patterns for count, patterns in _TEMPLATES["scenes"].items()}

_AN = re.compile(
    r"(?!uni(?!n)|use|usu|ute|eu|ewe|one\b|once|ufo)[aeiou]|hour|heir|honest|honou?r|suv\b|x-?ray"
)


class Composer:
    """Writes sentences about given labels, using words that name no other label of the set."""

    def __init__(self, labels: LabelSet) -> None:
        nouns = NounFilter(labels)
        self._leads = [lead for lead in _LEADS if not nouns(lead)] or [""]
        self._tails = [tail for tail in _TAILS if not nouns(tail)] or [""]

    def __call__(self, named: Sequence[str], rng: random.Random) -> str:
        """Write a sentence about the first label, plus up to three more if they fit, with added context."""
        named = named[: _fitting(named)]
        patterns = _SCENES[len(named)]
        pattern = rng.choice(patterns)
        scene = _scene(pattern, named)
        if len(scene.split()) > MAX_WORDS:
            scene = _scene(patterns[0], named)
        lead, tail = rng.choice(self._leads), rng.choice(self._tails)
        if pattern.endswith(("behind", "side by side")):
            tail = ""  # one location is enough
        wholes = [around.strip().replace("{}", scene) for around in (f"{lead or '{}'} {tail}", lead or "{}")]
        scene = next((whole for whole in wholes if len(whole.split()) <= MAX_WORDS), scene)
        return scene[0].upper() + scene[1:] + "."


def compose_captions(
    labels: LabelSet, wanted: Sequence[int], per_label: int, seed: int = 0
) -> list[tuple[str, tuple[int, ...]]]:
    """Write per_label sentences for each wanted label: one third about it alone, the rest with one to three others.

    Sentences about a label depend on the seed and the set of label texts, not on their order.

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
        # draw one extra, in case the label itself is among them
        drawn = rng.sample(texts, min(partners + 1, len(texts)))
        named = [text, *[other for other in drawn if other != text][:partners]]
        sentence = compose(named, rng)
        named = named[: _fitting(named)]
        if sentence not in written:
            written[sentence] = named
            misses = 0
        elif misses < 200:
            misses += 1
        else:  # few labels, many sentences: all combinations are used
            repeats.append((sentence, named))
    return [*written.items(), *repeats]


def _fitting(named: Sequence[str]) -> int:
    """Return how many of the labels fit into one sentence, at least one."""
    sizes = range(min(len(named), max(_SCENES)), 1, -1)
    return next((n for n in sizes if len(_scene(_SCENES[n][0], named[:n]).split()) <= MAX_WORDS), 1)


def _scene(pattern: str, named: Sequence[str]) -> str:
    return pattern.format(*map(with_article, named))


def with_article(text: str) -> str:
    """Add a, an or the to a noun; nothing for plurals, mass nouns, and scripts without articles."""
    words = unicodedata.normalize("NFKD", text).casefold().split()
    first, last = words[0], words[-1]
    if last in ENGLISH.the and len(words) == 1:
        return f"the {text}"
    if last in ENGLISH.no_article or singular(last) != last or not first[0].isascii():
        return text
    return f"an {text}" if _AN.match(first) else f"a {text}"
