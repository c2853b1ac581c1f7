"""The tree of everyday words: animal > dog > poodle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from mltta.labels.sets import ASSETS, label_key


@dataclass(frozen=True, eq=False)
class Tree:
    """Words with at most one parent each, in sections. Lower case."""

    #: the parent of each word that has one
    parents: dict[str, str]
    #: the section of each word: things, places, activities, …
    sections: dict[str, str]
    #: parents of which a thing is only one of the kinds
    kinds: frozenset[str]
    #: words that mean nearly the same as a word
    twins: dict[str, frozenset[str]]

    def above(self, word: str) -> list[str]:
        """The words above a word, nearest first."""
        found = []
        while (parent := self.parents.get(word)) is not None:
            found.append(parent)
            word = parent
        return found

    def below(self, word: str) -> frozenset[str]:
        """All words below a word."""
        return self._below.get(word, frozenset())

    @cached_property
    def _below(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for word in self.parents:
            for parent in self.above(word):
                found.setdefault(parent, set()).add(word)
        return {word: frozenset(own) for word, own in found.items()}


def parse(text: str) -> Tree:
    """Read "parent: children", "parent = kinds", "word ~ near-duplicate" and lines of other words, in [sections].

    >>> tree = parse("[things]\\nanimal: dog, cat\\ndog = poodle, pug")
    >>> tree.above("pug"), sorted(tree.below("animal")), sorted(tree.kinds)
    (['dog', 'animal'], ['cat', 'dog', 'poodle', 'pug'], ['dog'])
    """
    parents: dict[str, str] = {}
    sections: dict[str, str] = {}
    kinds: set[str] = set()
    twins: dict[str, frozenset[str]] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        if not line or line[0] in "#[":
            continue
        if " ~ " in line:
            group = frozenset(line.split(" ~ "))
            twins |= {word: twins.get(word, frozenset()) | group - {word} for word in group}
            continue
        sign = next((sign for sign in (": ", " = ") if sign in line), None)
        parent, words = line.split(sign) if sign else ("", line)
        if sign == " = ":
            kinds.add(parent)
        if parent:
            sections.setdefault(parent, section)
        for word in words.split(", "):
            if word in parents or (parent and word == parent):
                raise ValueError(f"{word!r} is in the tree twice")
            sections.setdefault(word, section)
            if parent:
                parents[word] = parent
    return Tree(parents, sections, frozenset(kinds), twins)


@cache
def everyday_tree() -> Tree:
    """The tree of the default list."""
    return parse((ASSETS / "labels" / "tree.txt").read_text(encoding="utf-8"))


def node_of(words: tuple[str, ...]) -> str | None:
    """The word of the tree that a label is: the first of its name, text and synonyms that is one."""
    keys = map(label_key, words)
    return next((key for key in keys if key in everyday_tree().sections), None)
