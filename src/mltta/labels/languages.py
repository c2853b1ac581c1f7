"""Labels in another language, seen by some eighty everyday things in six languages."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from mltta.labels.sets import ASSETS

_TABLE = ASSETS / "labels" / "languages.csv"
#: words of the table that are English too; alone they say nothing
_ALSO_ENGLISH = frozenset((_TABLE.parent / "also_english.txt").read_text(encoding="utf-8").split())


@lru_cache(maxsize=1)
def _languages() -> dict[str, dict[str, str]]:
    """By language, words without their accents and what they are in English."""
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name.capitalize(): {_bare(word): row["english"] for row in rows for word in row[name].split("/")}
        for name in rows[0]
        if name != "english"
    }


def _bare(word: str) -> str:
    """A word as somebody without those keys would type it."""
    apart = unicodedata.normalize("NFKD", word.strip().casefold())
    return "".join(c for c in apart if not unicodedata.combining(c))


def translated(labels: Iterable[str]) -> tuple[str, dict[str, str]] | None:
    """The language that some labels are in, and the English of those that are known; None without a sign of one.

    >>> translated(["Hund", "Katze", "Zeppelin"])
    ('German', {'Hund': 'dog', 'Katze': 'cat'})
    >>> translated(["dog", "cat", "chat", "boot"])
    """
    given = {label: _bare(label) for label in labels}
    best: tuple[str, dict[str, str]] | None = None
    for language, words in _languages().items():
        found = {label: words[bare] for label, bare in given.items() if bare in words and words[bare] != bare}
        sure = any(given[label] not in _ALSO_ENGLISH for label in found)
        if sure and (best is None or len(found) > len(best[1])):
            best = language, found
    return best
