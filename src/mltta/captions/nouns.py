"""Finds the labels that sentences name (whole words, longest phrase first), and measures caption coverage."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mltta.labels import LabelSet
from mltta.labels.known import singular, word_lists
from mltta.labels.sets import ASSETS

#: English rules for when a word names an object and when it does not
ENGLISH = word_lists("captions/english.txt")
_PHRASES = (ASSETS / "captions" / "swallowed.txt").read_text(encoding="utf-8").splitlines()
#: by label that must be absent (or ""), phrases whose starred words do not have their usual meaning
SWALLOWED = [line.rpartition(": ")[::2] for line in _PHRASES if line and line[0] != "#"]

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# Vowel signs and accents belong to their word, although \w excludes them.
_MARKS = "".join(chr(c) for c in range(0x300, 0xAC00) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
# A word, a character of a script without spaces, or punctuation that ends a phrase.
_TOKEN = re.compile(rf"[{_CJK}]|(?:[^\W_{_CJK}]|[{_MARKS}])+|[,;:!?()]")


class NounFilter:
    """Finds the labels of one label set in sentences.

    >>> NounFilter(LabelSet.of("dog, cat"))("Two cats watch a dog eat a hot dog.")
    [1, 0]
    """

    def __init__(self, labels: LabelSet, apart: bool = False) -> None:
        """Args:
        apart: a phrase names every label that has it; otherwise names take precedence over synonyms of other labels.
        """
        own: dict[tuple[str, ...], dict[int, None]] = {}
        other: dict[tuple[str, ...], dict[int, None]] = {}
        entries = zip(labels.names, labels.texts, labels.synonyms, strict=True)
        for i, (name, text, synonyms) in enumerate(entries):
            for table, texts in ((own, (name, text)), (own if apart else other, synonyms)):
                for phrase in itertools.chain.from_iterable(map(_phrases, texts)):
                    table.setdefault(phrase, {})[i] = None
        # A label's own name takes precedence over another label's synonym. Value: words consumed, labels named.
        self._table = {phrase: (len(phrase), tuple(named)) for phrase, named in (other | own).items()}
        # Labels that are sports equipment: by last word, the sport and the labels.
        self._gear = {
            phrase[1]: (phrase[0], named)
            for phrase, (_, named) in self._table.items()
            if len(phrase) == 2 and phrase[0] in ENGLISH.sports and (phrase[1],) not in self._table
        }
        self._has_computers = any((word,) in self._table for word in ENGLISH.computers)
        for label in ("", "table"):
            if not label or (label,) not in own:
                self._swallow(phrase for unless, phrase in SWALLOWED if unless == label)
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for phrase in self._table:
            lengths[phrase[0]].add(len(phrase))
        self._lengths = {word: sorted(sizes, reverse=True) for word, sizes in lengths.items()}

    def __call__(self, sentence: str, duplicates: bool = False) -> list[int]:
        """Return the labels that a sentence names, in order of first mention; with duplicates, every mention."""
        tokens = _tokens(sentence)
        words = [singular(token) for token in tokens]
        found: list[int] = []
        i = 0
        while i < len(words):
            consumed, named = self._match(tokens, words, i)
            if consumed == 1:
                named = self._settle(tokens, words, i, named)
            found.extend(named)
            i += consumed
        return found if duplicates else list(dict.fromkeys(found))

    def _match(self, tokens: list[str], words: list[str], i: int) -> tuple[int, tuple[int, ...]]:
        """Return the length of the longest phrase at position i in words, and the labels it names."""
        if i >= len(words):
            return 1, ()
        for size in self._lengths.get(words[i], ()):
            if 1 < size <= len(words) - i and (hit := self._table.get(tuple(words[i : i + size]))):
                # a plural never starts a compound: "buses line the street"
                plural = tokens[i] not in (words[i], "sports")
                if hit[0] < size and (plural or tokens[i + size - 1] in ENGLISH.verb_forms):
                    continue
                return hit
        if i + 1 < len(words) and len(tokens[i]) > 2 and len(tokens[i + 1]) > 2:
            joined = singular(tokens[i] + tokens[i + 1])  # air plane, snow boards
            if (joined,) in self._table and tokens[i] not in ENGLISH.function_words:
                return 2, self._table[(joined,)][1]
        return self._table.get((words[i],), (1, ()))

    def _describes(self, tokens: list[str], words: list[str], i: int) -> bool:
        """Whether the word at position i is an adjective of the next word."""
        if tokens[i - 1 : i] == ["in"] and tokens[i] == "orange":  # dressed in orange
            return True
        if i + 1 == len(tokens):
            return False
        after = tokens[i + 1]
        names_thing = after in ENGLISH.after_noun or not after.isalnum() or after.endswith(("s", "ing", "ed"))
        return not names_thing or bool(self._match(tokens, words, i + 1)[1])

    def _settle(self, tokens: list[str], words: list[str], i: int, named: tuple[int, ...]) -> tuple[int, ...]:
        """Return the labels named by a single word at position i, taking its context into account."""
        word = words[i]
        if not named and word in self._gear:
            sport, labels = self._gear[word]
            return labels if sport in words else ()
        no_thing = named and (
            (tokens[i] in ENGLISH.adjectives and self._describes(tokens, words, i))
            or (word in ENGLISH.verbs and _is_verb(tokens, i))
            or (word == "mouse" and self._has_computers and _is_animal(tokens, i))
        )
        return () if no_thing else named

    def _swallow(self, phrases: Iterable[str]) -> None:
        """Register phrases that hide their starred words, except those that are labels themselves."""
        extra: dict[tuple[str, ...], tuple[int, tuple[int, ...]]] = {}
        for line in phrases:
            for parts in itertools.product(*(alternatives.split("/") for alternatives in line.split())):
                phrase = tuple(singular(part.lstrip("*")) for part in parts)
                if phrase in self._table or (singular("".join(phrase)),) in self._table:
                    continue
                # Words after the last star are matched as usual: fire | truck.
                consumed = max(i for i, part in enumerate(parts, start=1) if part[0] == "*")
                visible = [(w,) for w, part in zip(phrase[:consumed], parts, strict=False) if part[0] != "*"]
                named = [label for word in visible for label in self._table.get(word, (1, ()))[1]]
                extra[phrase] = (consumed, tuple(named))
        self._table.update(extra)


def label_matches(
    texts: Iterable[str], labels: LabelSet, duplicates: bool = False, apart: bool = False
) -> list[list[int]]:
    """Return the labels that each text names."""
    nouns = NounFilter(labels, apart)
    return [nouns(text, duplicates) for text in texts]


def _is_verb(tokens: list[str], i: int) -> bool:
    before = tokens[max(0, i - 2) : i] or [""]
    if before[-1] in ENGLISH.before_verb and not (before[-1] == "to" and before[0] in ENGLISH.before_to):
        return True
    return tokens[i].endswith("s") and i + 1 < len(tokens) and tokens[i + 1] in ENGLISH.objects


def _is_animal(tokens: list[str], i: int) -> bool:
    after, before = tokens[i + 1 : i + 3], tokens[max(0, i - 2) : i]
    ways = (after, tuple(ENGLISH.animal_after)), (before, tuple(ENGLISH.animal_before))
    return any(token.startswith(stems) for own, stems in ways for token in own)


def _tokens(text: str) -> list[str]:
    """Split text into case-folded words; hyphens, apostrophes and underscores separate words."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _TOKEN.findall(text.casefold())


def _phrases(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the forms of a label in a sentence: as separate words, and as one word."""
    words = [token for token in _tokens(text) if token not in ",;:!?()"]
    if words:
        yield tuple(map(singular, words))
    if len(words) > 1:
        yield (singular("".join(words)),)


@dataclass(frozen=True)
class Quality:
    """Coverage of a label set by captions."""

    labels: tuple[str, ...]  # names
    captions: int  # number of captions
    counts: tuple[int, ...]  # number of captions that name each label
    sizes: tuple[int, ...]  # number of captions that name 0, 1, 2 … labels

    @property
    def never(self) -> list[str]:
        """The labels that no caption names."""
        return [label for label, count in zip(self.labels, self.counts, strict=True) if not count]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain data; labels sorted by number of captions, descending."""
        order = sorted(range(len(self.labels)), key=lambda i: -self.counts[i])
        return {
            "captions": self.captions,
            "labels": len(self.labels),
            "captions_per_label": {of.__name__: of(self.counts) for of in (min, median, max)},
            "labels_per_caption": {str(size): count for size, count in enumerate(self.sizes)},
            "never_mentioned": self.never,
            "by_label": {self.labels[i]: self.counts[i] for i in order},
        }


def quality(texts: Sequence[str], labels: LabelSet) -> Quality:
    """Count which labels captions name.

    >>> quality(["A dog.", "A dog and a cat.", "The sky."], LabelSet.of("dog, cat, cow")).counts
    (2, 1, 0)
    """
    mentions = label_matches(texts, labels)
    counts = Counter(label for named in mentions for label in named)
    sizes = Counter(map(len, mentions))
    named, shares = range(len(labels)), range(max(sizes, default=0) + 1)
    return Quality(labels.names, len(texts), tuple(counts[i] for i in named), tuple(sizes[n] for n in shares))
