"""Labels in other languages: names of the built-in labels, and lists typed in one of these languages."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from mltta.errors import LabelError
from mltta.labels.entries import LEVEL
from mltta.labels.known import known_labels
from mltta.labels.sets import ASSETS, LabelSet, label_key

_FOLDER = ASSETS / "labels" / "languages"
LANGUAGES = {
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "ja": "Japanese",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "tr": "Turkish",
    "zh": "Chinese",
}
#: words of the tables that are also English, which alone are not evidence of another language
_ALSO_ENGLISH = frozenset((ASSETS / "labels" / "also_english.txt").read_text(encoding="utf-8").splitlines())
log = logging.getLogger("mltta")


@lru_cache
def names(language: str) -> dict[str, list[str]]:
    """Return, by English label, its name in a language and further words for it."""
    if language not in LANGUAGES:
        known = ", ".join(f"{code} ({name})" for code, name in LANGUAGES.items())
        raise LabelError(f"Unknown language {language[:40]!r}. Available: en (English), {known}.")
    lines = (_FOLDER / f"{language}.tsv").read_text(encoding="utf-8").splitlines()
    return {label_key(english): words for english, *words in (line.split("\t") for line in lines)}


@lru_cache
def _english(language: str) -> dict[str, str]:
    """Return the English label of each word of a language, with and without accents."""
    found: dict[str, str] = {}
    for spelled in (label_key, _bare):
        for english, words in names(language).items():
            for word in words:
                found.setdefault(spelled(word), english)
    return found


def _bare(word: str) -> str:
    """Return a word in lower case without accents."""
    apart = unicodedata.normalize("NFKD", label_key(word))
    return unicodedata.normalize("NFC", "".join(c for c in apart if not "\u0300" <= c <= "\u036f"))


def in_language(labels: LabelSet, language: str | None) -> LabelSet:
    """Return the labels with titles in a language; names and texts, and so the scores, do not change.

    >>> in_language(LabelSet.of("animal > dog, cat, zeppelin"), "de").keywords
    ('Tier|Hund', 'Katze', 'zeppelin')
    """
    if language in (None, "en"):
        return labels
    table, titles = names(str(language)), dict[str, None]()
    for name, title in zip(labels.names, labels.keywords, strict=True):
        *above, own = title.split(LEVEL)
        levels = [table.get(label_key(level), [level])[0] for level in above]
        levels.append(table.get(label_key(name), [own])[0])
        titles.setdefault(title if LEVEL.join(levels) in titles else LEVEL.join(levels))
    return replace(labels, titles=tuple(titles))


def in_english(labels: LabelSet) -> tuple[LabelSet, str]:
    """Return labels typed in another language as English ones that keep their titles, and what was done."""
    found = translated(labels.names)
    if found is None:
        return labels, ""
    language, english = found
    taken = {label_key(name) for name in labels.names if name not in english}
    new = {}
    for label, word in english.items():
        if word not in taken:
            new[label] = word
            taken.add(word)
    known = known_labels()
    entries = list(zip(labels.names, labels.texts, strict=True))
    names_ = tuple(new.get(name, name) for name, _ in entries)
    texts = tuple(known.get(new[name], (new[name],))[0] if name in new else text for name, text in entries)
    some = ", ".join(f'"{label}" as "{word}"' for label, word in list(new.items())[:5]) + " …" * (
        len(new) > 5
    )
    said = f"these labels look {language} and are scored in English: {some}"
    if left := [name for name in labels.names if name not in new]:
        said += (
            f". Not translated: {', '.join(left[:5])}{' …' * (len(left) > 5)}; use English words for these"
        )
    return replace(labels, names=names_, texts=texts, titles=labels.keywords), said


def translated(labels: Iterable[str]) -> tuple[str, dict[str, str]] | None:
    """Return the language of some labels and the translations of known ones; None if all may be English.

    >>> translated(["Hund", "Katze", "Zeppelin"])
    ('German', {'Hund': 'dog', 'Katze': 'cat'})
    >>> translated(["dog", "cat", "chat", "boot"])
    """
    given = list(labels)
    plain = {label for label in given if label_key(label) in known_labels()}
    best: tuple[str, dict[str, str]] | None = None
    for code, language in LANGUAGES.items():
        words = _english(code)
        keys = {
            label: next((key for key in (label_key(label), _bare(label)) if key in words), "")
            for label in given
        }
        found = {label: words[key] for label, key in keys.items() if key and words[key] != key}
        sure = any(keys[label] not in _ALSO_ENGLISH for label in found) and len(plain - {*found}) <= len(
            found
        )
        if sure and (best is None or len(found) > len(best[1])):
            best = language, found
    return best
