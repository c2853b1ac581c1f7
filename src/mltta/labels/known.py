"""Built-in knowledge about labels: singulars, texts in prompts and synonyms."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace

from mltta.labels.sets import ASSETS, BUILT_IN, LabelSet, label_key

#: things whose name starts with a colour that does not describe their colour
OTHER_THINGS = frozenset(("red panda",))


def word_lists(file: str) -> SimpleNamespace:
    """Read a file of word lists: "name = words" per line, comments after #."""
    lines = (ASSETS / file).read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" = ") for line in lines if line and line[0] != "#")
    return SimpleNamespace(**{name: frozenset(words.split()) for name, words in pairs})


_WORDS = word_lists("labels/english.txt")
_IRREGULAR: dict[str, str] = dict(pair.split(":") for pair in _WORDS.irregular)


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """Return the singular of a lower-case English word; singular words are returned unchanged."""
    if word in _IRREGULAR or word in _WORDS.unchanged:
        return _IRREGULAR.get(word, word)
    if word.endswith("men"):
        return word[:-2] + "an"
    if len(word) <= 3 or word[-1] != "s" or word.endswith(("ss", "us", "sis", "itis")):
        return word
    if word[:-1] in _WORDS.ends_in_e:
        return word[:-1]
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("oes", "sses", "xes", "zzes", "ches", "shes", "buses", "tuses", "puses", "ruses")):
        return word[:-2]  # octopuses, walruses
    return word[:-1]


@lru_cache(maxsize=1)
def known_labels() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return all built-in labels by key, with the text of the first set that has one and the synonyms of all."""
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
    """Return the built-in labels by singular; of "car" and "cars", the first."""
    return {_singular(key): key for key in reversed(known_labels())}


def _singular(key: str) -> str:
    first, space, last = key.rpartition(" ")
    return first + space + ("person" if last == "people" else singular(last))


def _plain(key: str, before: frozenset[str] = _WORDS.counts) -> str | None:
    """Return the built-in label for a label, ignoring number and leading words: "dog" for "the dogs"."""
    words = key.split()
    while len(words) > 1 and (words[0] in before or words[0].isdecimal()):
        del words[0]
    bare = " ".join(words)
    return bare if bare in known_labels() else _by_singular().get(_singular(bare))


def with_known_words(labels: LabelSet) -> LabelSet:
    """Add the synonyms of built-in sets to labels, except words that are labels themselves.

    Plurals, articles and counts are normalized in texts but kept in names. A coloured thing has the thing as a
    synonym.

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
        named = plain is not None or key in OTHER_THINGS
        # the thing without its colour
        kind = None if named else _plain(key, _WORDS.counts | _WORDS.colours)
        kinds.append(() if kind is None else (kind,))
    own = {label_key(word) for words in (labels.names, texts) for word in words}
    synonyms = []
    for name, text, things, more in zip(labels.names, texts, kinds, labels.synonyms, strict=True):
        # known synonyms first, so that their order is the same for a built-in set and a list with the same labels
        keys = (label_key(name), label_key(text), *things)
        words = [*things, *(word for key in keys for word in known.get(key, ("", ()))[1]), *more]
        synonyms.append(tuple(dict.fromkeys(word for word in words if label_key(word) not in own)))
    return replace(labels, texts=tuple(texts), synonyms=tuple(synonyms))


def each_alone(labels: LabelSet) -> LabelSet:
    """`with_known_words` for each label by itself, so that its words do not depend on the rest of the list."""
    alone = [with_known_words(labels.pick([i])) for i in range(len(labels))]
    texts, synonyms = ([getattr(one, part)[0] for one in alone] for part in ("texts", "synonyms"))
    return replace(labels, texts=tuple(texts), synonyms=tuple(synonyms))
