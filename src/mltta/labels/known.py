"""What the library knows about a label, whoever typed it: how a prompt says it, and other words for it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mltta.labels.sets import BUILT_IN, LabelSet, label_key

#: words before a label that say how many, or nothing
COUNTS = frozenset(
    (
        "a",
        "an",
        "the",
        "my",
        "some",
        "several",
        "many",
        "few",
        "both",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
    )
)
COLOURS = frozenset(
    (
        "black",
        "white",
        "grey",
        "gray",
        "red",
        "orange",
        "yellow",
        "green",
        "blue",
        "purple",
        "pink",
        "brown",
        "beige",
    )
)
#: named by a colour, and not what they are named after
OTHER_THINGS = frozenset(("red panda",))
IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "mouse": "mice", "goose": "geese",
    "foot": "feet", "tooth": "teeth", "knife": "knives", "leaf": "leaves", "wolf": "wolves", "shelf": "shelves",
    "loaf": "loaves", "calf": "calves", "scarf": "scarves", "sheep": "sheep", "deer": "deer", "fish": "fishes",
}  # fmt: skip


@lru_cache(maxsize=1)
def known_labels() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The labels of all built-in sets by their key: the text of the first set that has one, the synonyms of all."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name in BUILT_IN:
        labels = LabelSet.load(name)
        for own, text, synonyms in zip(labels.names, labels.texts, labels.synonyms, strict=True):
            for key in {label_key(own), label_key(text)}:
                said, words = found.get(key, (text, ()))
                found[key] = (said, tuple(dict.fromkeys([*words, *synonyms])))
    return found


@lru_cache(maxsize=1)
def _other_number() -> dict[str, str]:
    """Plurals of the built-in labels, and singulars of those that are plurals, by what they stand for."""
    found: dict[str, str] = {}
    for key in known_labels():
        first, _, last = key.rpartition(" ")
        ends = [IRREGULAR[last]] if last in IRREGULAR else [last + "s"]
        if last.endswith(("s", "x", "z", "ch", "sh", "o")):
            ends.append(last + "es")
        if last.endswith("y"):
            ends.append(last[:-1] + "ies")
        if last.endswith("s") and not last.endswith("ss"):
            ends.append(last[:-1])
        for end in ends:
            found.setdefault(f"{first} {end}".strip(), key)
    return found


def _plain(key: str) -> str | None:
    """The built-in label that a label is, but for articles, counts and number: "the dogs" is "dog"."""
    words = key.split()
    while len(words) > 1 and (words[0] in COUNTS or words[0].isdecimal()):
        del words[0]
    bare = " ".join(words)
    return next((found for found in (bare, _other_number().get(bare)) if found in known_labels()), None)


def _coloured(key: str) -> str | None:
    """The built-in label that a label is a kind of by its colour: "a red car" is a "car"."""
    words = key.split()
    while len(words) > 1 and (words[0] in COUNTS | COLOURS or words[0].isdecimal()):
        del words[0]
    return None if key in OTHER_THINGS else _plain(" ".join(words))


def with_known_words(labels: LabelSet) -> LabelSet:
    """The labels with the synonyms that any built-in set has for them; words that are labels themselves stay apart.

    A plural, an article or a count before a label changes nothing but its name. A coloured thing has the thing itself
    for a synonym.

    >>> with_known_words(LabelSet.of("cat, puma")).synonyms[1]
    ()
    >>> with_known_words(LabelSet.of("two dogs, the sofa")).texts
    ('dog', 'sofa')
    """
    known = known_labels()
    given = {label_key(word) for words in (labels.names, labels.texts) for word in words}
    texts: list[str] = []
    kinds: list[tuple[str, ...]] = []
    for name, text in zip(labels.names, labels.texts, strict=True):
        key = label_key(name)
        plain = key if key in known else _plain(key)
        kind = None
        if label_key(text) == key and plain is not None and (plain == key or plain not in given):
            text = known[plain][0]
            given.add(plain)
        elif plain is None:
            kind = _coloured(key)
        texts.append(text)
        kinds.append(() if kind is None else (kind,))  # the thing that it is, in a colour
    own = {label_key(word) for words in (labels.names, texts) for word in words}
    synonyms = []
    for name, text, things, more in zip(labels.names, texts, kinds, labels.synonyms, strict=True):
        # those that are known come first: a list typed by hand and one by name then have them in the same order
        keys = (label_key(name), label_key(text), *things)
        words = [*things, *(word for key in keys for word in known.get(key, ("", ()))[1]), *more]
        synonyms.append(tuple(dict.fromkeys(word for word in words if label_key(word) not in own)))
    return replace(labels, texts=tuple(texts), synonyms=tuple(synonyms))
