"""Detect labels in another language, using about eighty everyday words in six languages."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from mltta.labels.sets import ASSETS

_TABLE = ASSETS / "labels" / "languages.csv"
#: words of the table that are also English, which alone are not evidence
_ALSO_ENGLISH = frozenset((_TABLE.parent / "also_english.txt").read_text(encoding="utf-8").split())


@lru_cache(maxsize=1)
def _languages() -> dict[str, dict[str, str]]:
    """Return, by language, words without accents and their English translations."""
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name.capitalize(): {_bare(word): row["english"] for row in rows for word in row[name].split("/")}
        for name in rows[0]
        if name != "english"
    }


def _bare(word: str) -> str:
    """Return a word in lower case without accents."""
    apart = unicodedata.normalize("NFKD", word.strip().casefold())
    return "".join(c for c in apart if not unicodedata.combining(c))


def translated(labels: Iterable[str]) -> tuple[str, dict[str, str]] | None:
    """Return the language of some labels and the translations of known ones; None if all may be English.

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
