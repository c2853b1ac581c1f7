"""Additional synonyms for labels, from a file or from WordNet."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mltta.errors import ConfigError, LabelError
from mltta.labels import LabelSet, read_label_text
from mltta.storage.reading import UNREADABLE, explain, reading, shown

_FORMS = 'Give a JSON file {"sofa": ["couch", "settee"]} or a CSV file with lines such as sofa,couch,settee.'


def add_synonyms(labels: LabelSet, words: Mapping[str, Sequence[str]]) -> LabelSet:
    """Return the labels with additional synonyms; names that are not labels of the set raise an error.

    >>> add_synonyms(LabelSet.of("sofa, cat"), {"sofa": ["settee"]}).synonyms
    (('settee',), ())
    """
    merged = [dict.fromkeys(known) for known in labels.synonyms]
    for label, more in words.items():
        merged[labels.index(label)].update(dict.fromkeys(more))
    return replace(labels, synonyms=tuple(map(tuple, merged)))


def read_synonyms(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read synonyms by label from a JSON object of lists, or from CSV lines: label, then synonyms."""
    content = read_label_text(path := Path(path), _FORMS)
    if path.suffix.casefold() == ".json":
        try:
            table = json.loads(content)
        except UNREADABLE as error:
            raise LabelError(f"{path} is not valid JSON: {explain(error)}. {_FORMS}") from None
        if not isinstance(table, dict):
            raise LabelError(f"{path} does not contain a JSON object. {_FORMS}")
    else:
        table = {}
        with reading(path, LabelError, _FORMS):
            rows = [row for row in csv.reader(io.StringIO(content, newline="")) if any(map(str.strip, row))]
        titles = bool(rows) and rows[0][0].strip().casefold() in ("label", "name")
        for label, *words in rows[titles:]:
            table.setdefault(label.strip(), []).extend(word.strip() for word in words if word.strip())
    for label, words in table.items():
        if not (isinstance(words, list) and words and all(isinstance(w, str) and w.strip() for w in words)):
            raise LabelError(f"{path}: {label!r} needs a list of words, not {shown(words)}. {_FORMS}")
    return table


def wordnet_synonyms(labels: LabelSet) -> dict[str, list[str]]:
    """Look up synonyms of the most common noun sense of each label in the English WordNet."""
    try:
        import wn
    except ImportError:
        raise ConfigError("synonyms from WordNet need the package wn: pip install mltta[wordnet]") from None
    try:
        lexicons = wn.lexicons(lang="en")
    except wn.Error as error:
        raise ConfigError(f"WordNet cannot be opened: {error}") from error
    if not lexicons:
        raise ConfigError(
            "the English WordNet is not installed. Download it with `python -m wn download oewn:2024`, "
            "or give a file of synonyms instead."
        )
    lexicon = wn.Wordnet(lexicons[0].specifier(), expand="")
    found = {}
    for name, text in zip(labels.names, labels.texts, strict=True):
        senses = lexicon.synsets(text, pos="n")
        words = [word for word in senses[0].lemmas() if word.casefold() != text.casefold()] if senses else []
        if words:
            found[name] = words
    return found
