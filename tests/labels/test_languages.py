"""Labels in other languages are noticed, English ones never are."""

from __future__ import annotations

import logging
import re

import pytest

from mltta import LabelSet, Tagger
from mltta.labels.languages import _ALSO_ENGLISH, _languages, translated
from mltta.labels.sets import BUILT_IN
from mltta.storage.folders import MINI


@pytest.mark.parametrize(
    ("labels", "language", "english"),
    [
        ("Hund, Katze", "German", {"Hund": "dog", "Katze": "cat"}),
        ("chien, chat", "French", {"chien": "dog", "chat": "cat"}),
        ("perro, gato, pajaro", "Spanish", {"perro": "dog", "gato": "cat", "pajaro": "bird"}),
        ("cane, gatto", "Italian", {"cane": "dog", "gatto": "cat"}),
        ("cachorro, gato, cão", "Portuguese", {"cachorro": "dog", "gato": "cat", "cão": "dog"}),
        ("hond, kat, boom", "Dutch", {"hond": "dog", "kat": "cat", "boom": "tree"}),
        ("STRASSE, baum", "German", {"STRASSE": "street", "baum": "tree"}),
    ],
)
def test_a_language_is_known_by_its_everyday_words(labels, language, english):
    assert translated(labels.split(", ")) == (language, english)


@pytest.mark.parametrize("labels", [["dog"], ["cane"], ["chat", "train", "boot"], ["wombat", "axolotl"], []])
def test_english_words_and_unknown_ones_are_no_sign(labels):
    assert translated(labels) is None


def test_no_english_label_synonym_or_word_of_a_caption_is_taken_for_another_language():
    words = set(re.findall(r"[a-z]+", (MINI / "captions" / "texts.txt").read_text("utf-8").lower()))
    for name in BUILT_IN:
        labels = LabelSet.load(name)
        words |= {*labels.texts, *(word for own in labels.synonyms for word in own)}
    assert len(words) > 5000
    assert {word for word in words if translated([word])} == set()


def test_what_counts_as_english_too_is_in_the_table():
    assert {word for table in _languages().values() for word in table} >= _ALSO_ENGLISH


def test_a_tagger_says_what_to_write_instead(caplog):
    with caplog.at_level(logging.WARNING, "mltta"):
        Tagger(labels=["Hund", "Katze", "Baum", "Haus"], method="clip")
    assert "look German" in caplog.text
    assert 'use "dog" for "Hund", use "cat" for "Katze", use "tree" for "Baum" …' in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "mltta"):
        Tagger(labels=["dog", "cat"], method="clip")
    assert not caplog.records
