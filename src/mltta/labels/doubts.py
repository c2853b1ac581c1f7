"""Labels that are not things: what is scored instead, or that nothing reliable is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mltta.labels.known import OTHER_THINGS, known_labels, singular, word_lists
from mltta.labels.sets import label_key

_WORDS = word_lists("labels/english.txt")
_REASONS: dict[str, str] = {
    "numbers": "things are not counted, so these are scored as if they had no number",
    "colours": "colors of things are not judged reliably; these may be shown for things of any color",
    "moods": "moods and judgements cannot be recognized, so scores of these mean little",
    "qualities": "the quality of a photo is not measured, so scores of these mean little",
}


def doubts(labels: Iterable[str]) -> list[str]:
    """Return what a user should know about labels that are not things.

    >>> doubts(["dog", "2 dogs", "happy", "red panda"])[0]
    'things are not counted, so these are scored as if they had no number: "2 dogs"'
    """
    known = known_labels()
    found: dict[str, list[str]] = {}
    for label in labels:
        words = label_key(label).split()
        if label_key(label) in known or label_key(label) in OTHER_THINGS:
            continue
        kind = next((name for name, holds in _KINDS.items() if holds(words)), None)
        if kind is not None:
            found.setdefault(kind, []).append(f'"{label}"')
    return [
        f"{_REASONS[kind]}: {', '.join(some[:5])}{' …' * (len(some) > 5)}" for kind, some in found.items()
    ]


def _counts(words: list[str]) -> bool:
    return len(words) > 1 and (words[0].isdecimal() or words[0] in _WORDS.numbers)


def _colours(words: list[str]) -> bool:
    rest = [word for word in words if word not in _WORDS.colours]
    thing = " ".join([*rest[:-1], *map(singular, rest[-1:])])
    return len(rest) < len(words) and (not rest or thing in known_labels())


_KINDS: dict[str, Callable[[list[str]], bool]] = {
    "numbers": _counts,
    "colours": _colours,
    "moods": lambda words: not _WORDS.moods.isdisjoint(words),
    "qualities": lambda words: not _WORDS.qualities.isdisjoint(words),
}
