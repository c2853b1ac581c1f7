"""The sentences on which the text tower is trained: captions, prompts, names, definitions, lists of labels."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.resources import files

from training.wording import PLAIN, Wording, wordings

TEMPLATES = (
    PLAIN, "{}", "a {}", "a photo of {}.", "a picture of a {}.", "a photo of the {}.",
    "a close-up photo of a {}.", "a photo of a small {}.", "a photo of many {}.",
    "there is a {} in the scene.",
)  # fmt: skip
LISTS = (
    "a photo of a {0} and a {1}.", "a {0} and a {1}", "a photo of a {0}, a {1} and a {2}.",
    "a {0} next to a {1}", "a photo with a {0}, a {1}, a {2} and a {3}.", "{0}, {1}, {2}",
)  # fmt: skip


def imagenet_info(name: str) -> list[str]:
    """Lines of an ImageNet table included in timm."""
    return (files("timm.data") / "_info" / name).read_text(encoding="utf-8").splitlines()


def synset_table(name: str) -> dict[str, str]:
    """A timm table that maps synsets to text ('lemma' or 'definition')."""
    return dict(line.split("\t", 1) for line in imagenet_info(f"imagenet_synset_to_{name}.txt") if line)


def imagenet_names() -> list[list[str]]:
    """The names of each of the 1,000 ImageNet classes, most common first; for shared names the next one is used."""
    lemmas = synset_table("lemma")
    names = [[part.strip() for part in lemmas[s].split(",")] for s in imagenet_info("imagenet_synsets.txt")]
    taken: set[str] = set()
    unique: list[list[str]] = []
    for own in names:
        first = next((n for n in own if n not in taken), own[0])
        taken.add(first)
        unique.append([first, *(n for n in own if n != first)])
    # The two cranes and the two maillots need distinct names.
    unique[134][0], unique[517][0] = "crane bird", "construction crane"
    unique[638][0], unique[639][0] = "maillot", "one-piece swimsuit"
    return unique


def sentences(nouns: Sequence[str], captions: Sequence[str], lists: int, seed: int) -> list[str]:
    """All distinct sentences of the corpus, in a fixed order."""
    rng = random.Random(seed)
    found: dict[str, None] = dict.fromkeys(captions)
    lemmas, definitions = synset_table("lemma"), synset_table("definition")
    names: dict[str, None] = {}
    for synset, text in lemmas.items():
        own = [part.strip() for part in text.split(",")]
        names.update(dict.fromkeys(own[:3]))
        if synset in definitions:
            found[f"{own[0]}: {definitions[synset]}"[:160]] = None
    for name in names:
        found[PLAIN.format(name)] = None
        found[rng.choice(TEMPLATES).format(name)] = None
    everyday = [*nouns, *(n for own in imagenet_names() for n in own[:1])]
    for name in everyday:
        found.update(dict.fromkeys(t.format(name) for t in TEMPLATES))
    for _ in range(lists):
        chosen = rng.sample(list(nouns) if rng.random() < 0.8 else everyday, 4)
        found[rng.choice(LISTS).format(*chosen)] = None
    return list(found)


def leaning(nouns: Sequence[str], seed: int) -> list[Wording]:
    """Other wordings of every noun and of the most common name of every ImageNet class."""
    rng = random.Random(seed)
    names = dict.fromkeys([*nouns, *(own[0] for own in imagenet_names())])
    return list({w.text: w for name in names for w in wordings(name, rng)}.values())
