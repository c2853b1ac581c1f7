"""What the library knows about a label, whoever typed it: how a prompt says it, and other words for it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mltta.labels.number import singular
from mltta.labels.sets import BUILT_IN, LabelSet, label_key

#: words before a label that say how many, or nothing
COUNTS = frozenset(
    ("a", "an", "the", "my", "some", "several", "many", "few", "both", "one", "two", "three", "four", "five", "six")
)  # fmt: skip
COLOURS = frozenset(
    ("black", "white", "grey", "gray", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "beige")
)  # fmt: skip
#: named by a colour, and not what they are named after
OTHER_THINGS = frozenset(("red panda",))


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
def _by_singular() -> dict[str, str]:
    """The built-in labels by their singular: of "car" and "cars" the first."""
    return {_singular(key): key for key in reversed(known_labels())}


def _singular(key: str) -> str:
    first, space, last = key.rpartition(" ")
    return first + space + ("person" if last == "people" else singular(last))


def _plain(key: str, before: frozenset[str] = COUNTS) -> str | None:
    """The built-in label that a label is, but for articles, counts and number: "the dogs" is "dog".

    Args:
        before: words that may stand before it.
    """
    words = key.split()
    while len(words) > 1 and (words[0] in before or words[0].isdecimal()):
        del words[0]
    bare = " ".join(words)
    return bare if bare in known_labels() else _by_singular().get(_singular(bare))


def _coloured(key: str) -> str | None:
    """The built-in label that a label is a kind of by its colour: "a red car" is a "car"."""
    return None if key in OTHER_THINGS else _plain(key, COUNTS | COLOURS)


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
        plain = _plain(key)
        if plain is not None and label_key(text) == key:
            said = known[plain][0]
            if not given & ({plain, label_key(said)} - {key}):
                text = said
                given |= {plain, label_key(said)}
        texts.append(text)
        kind = _coloured(key) if plain is None else None
        kinds.append(() if kind is None else (kind,))  # the thing that it is, in a colour
    own = {label_key(word) for words in (labels.names, texts) for word in words}
    synonyms = []
    for name, text, things, more in zip(labels.names, texts, kinds, labels.synonyms, strict=True):
        # those that are known come first: a list typed by hand and one by name then have them in the same order
        keys = (label_key(name), label_key(text), *things)
        words = [*things, *(word for key in keys for word in known.get(key, ("", ()))[1]), *more]
        synonyms.append(tuple(dict.fromkeys(word for word in words if label_key(word) not in own)))
    return replace(labels, texts=tuple(texts), synonyms=tuple(synonyms))
