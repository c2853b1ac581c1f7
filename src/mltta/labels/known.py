"""What the library knows about a label, whoever typed it: how a prompt says it, and other words for it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from mltta.labels.sets import BUILT_IN, LabelSet, label_key


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


def with_known_words(labels: LabelSet) -> LabelSet:
    """The labels with the synonyms that any built-in set has for them; words that are labels themselves stay apart.

    >>> with_known_words(LabelSet.of("cat, puma")).synonyms[1]
    ()
    """
    known = known_labels()
    texts = [
        known.get(label_key(name), (text, ()))[0] if label_key(text) == label_key(name) else text
        for name, text in zip(labels.names, labels.texts, strict=True)
    ]
    own = {label_key(word) for words in (labels.names, texts) for word in words}
    synonyms = []
    for name, text, given in zip(labels.names, texts, labels.synonyms, strict=True):
        # those that are known come first: a list typed by hand and one by name then have them in the same order
        words = [*(word for key in (name, text) for word in known.get(label_key(key), ("", ()))[1]), *given]
        synonyms.append(tuple(dict.fromkeys(word for word in words if label_key(word) not in own)))
    return replace(labels, texts=tuple(texts), synonyms=tuple(synonyms))
