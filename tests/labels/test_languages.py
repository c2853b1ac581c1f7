"""Labels in ten languages: names lead back to their labels, and typed ones are understood."""

from __future__ import annotations

import logging
import re

import pytest

from mltta import LabelSet, Tagger, load_backbone
from mltta.errors import LabelError
from mltta.labels.languages import (
    _ALSO_ENGLISH,
    LANGUAGES,
    _english,
    in_english,
    in_language,
    names,
    translated,
)
from mltta.labels.sets import BUILT_IN, label_key
from mltta.storage.folders import MINI


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_label_has_a_name_that_leads_back_to_it_alone(language, name):
    labels = LabelSet.load(name)
    shown = in_language(labels, language)
    assert (shown.names, shown.texts, shown.synonyms) == (labels.names, labels.texts, labels.synonyms)
    known = names(language)
    for label, title in zip(labels.names, shown.display, strict=True):
        assert known[label_key(label)][0] == title, "nothing is left in English by accident"
    assert len({label_key(title) for title in shown.display}) == len(labels)
    back = {label_key(title): label for label, title in zip(labels.names, shown.display, strict=True)}
    texts = dict(zip(labels.names, labels.texts, strict=True))
    for title, label in back.items():
        english = _english(language)[title]  # one English word for a name, of several lists
        assert {english, title} & {label_key(label), label_key(texts[label])} or names(language)[english][
            0
        ] == (shown.display[labels.names.index(label)])


@pytest.mark.parametrize("language", LANGUAGES)
def test_tables_are_clean_and_use_the_script_of_their_language(language):
    for english, words in names(language).items():
        assert english == label_key(english)
        assert words
        for word in words:
            assert word == " ".join(word.split()), word
            assert not re.search(r"[|>,;/\t]", word), word
    letters = "".join(word for words in names(language).values() for word in words)
    asian = len(re.findall(r"[\u3040-\u30ff\u4e00-\u9fff]", letters)) / len(letters)
    assert asian > 0.98 if language in ("ja", "zh") else asian == 0


@pytest.mark.parametrize(
    ("labels", "language", "english"),
    [
        ("Hund, Katze", "German", {"Hund": "dog", "Katze": "cat"}),
        ("chien, chat", "French", {"chien": "dog", "chat": "cat"}),
        ("perro, gato, pajaro", "Spanish", {"perro": "dog", "gato": "cat", "pajaro": "bird"}),
        ("cane, gatto", "Italian", {"cane": "dog", "gatto": "cat"}),
        ("cachorro, gato, cão", "Portuguese", {"cachorro": "dog", "gato": "cat", "cão": "dog"}),
        ("hond, kat, boom", "Dutch", {"hond": "dog", "kat": "cat", "boom": "tree"}),
        ("kot, drzewo, pies", "Polish", {"kot": "cat", "drzewo": "tree", "pies": "dog"}),
        ("köpek, kedi", "Turkish", {"köpek": "dog", "kedi": "cat"}),
        ("犬, ネコ, 自転車", "Japanese", {"犬": "dog", "自転車": "bicycle"}),
        ("狗, 自行车", "Chinese", {"狗": "dog", "自行车": "bicycle"}),
        ("STRASSE, baum", "German", {"STRASSE": "street", "baum": "tree"}),
    ],
)
def test_a_language_is_known_by_its_words(labels, language, english):
    assert translated(labels.split(", ")) == (language, english)


@pytest.mark.parametrize(
    "labels",
    [
        ["dog"],
        ["cane"],
        ["chat", "train", "boot"],
        ["wombat", "axolotl"],
        ["dog", "cat", "Katze", "tree", "car"],
        [],
    ],
)
def test_english_lists_and_unknown_words_are_no_sign(labels):
    assert translated(labels) is None


def test_no_english_label_synonym_or_word_of_a_caption_is_taken_for_another_language():
    words = set(re.findall(r"[a-z]+", (MINI / "captions" / "texts.txt").read_text("utf-8").lower()))
    for name in BUILT_IN:
        labels = LabelSet.load(name)
        words |= {*labels.texts, *(word for own in labels.synonyms for word in own)}
    assert len(words) > 5000
    assert {word for word in words if translated([word])} == set()


def test_what_counts_as_english_too_is_in_the_tables():
    assert {word for code in LANGUAGES for word in _english(code)} >= _ALSO_ENGLISH


def test_typed_labels_are_scored_in_english_and_shown_as_typed():
    labels, said = in_english(LabelSet.of("Hund, Katze, Zeppelin"))
    assert (labels.names, labels.display) == (("dog", "cat", "Zeppelin"), ("Hund", "Katze", "Zeppelin"))
    assert said == (
        'these labels look German and are scored in English: "Hund" as "dog", "Katze" as "cat". '
        "Not translated: Zeppelin; use English words for these"
    )
    twice, _ = in_english(LabelSet.of("cachorro, cão, gato"))
    assert twice.names == ("dog", "cão", "cat"), "two words for one label stay two labels"
    assert in_english(LabelSet.of("dog, cat"))[1] == ""
    assert LabelSet.of("犬、猫，鳥").names == ("犬", "猫", "鳥")


def test_a_list_typed_in_one_language_is_shown_in_another():
    labels, _ = in_english(LabelSet.of("Hund, Katze, Zeppelin"))
    assert in_language(labels, "fr").display == ("chien", "chat", "Zeppelin")


def test_an_unknown_language_is_an_error_that_lists_the_known_ones():
    with pytest.raises(LabelError, match=r"Unknown language 'xx'. Available: en \(English\), de \(German\)"):
        in_language(LabelSet.of("dog"), "xx")


@pytest.fixture(scope="module")
def photo():
    from tests.safety.world import photo

    return photo(3, (96, 64))


def test_scores_in_every_language_are_those_of_english_bit_for_bit(photo):
    backbone = load_backbone("mini")
    english = Tagger(backbone, "everyday")
    scored = english(photo)
    for language in LANGUAGES:
        shown = in_language(english.labels, language)
        assert len(set(shown.display)) == len(shown) == 1029
        tagger = Tagger(backbone, "coco", "clip", language=language)
        assert tagger.session.question.labels == LabelSet.load("coco"), "the model never sees a language"
    german = Tagger(backbone, "everyday", language="de", keywords_from=0, threshold=0)
    title = dict(zip(german.labels.names, german.labels.display, strict=True))
    tags = german(photo)
    assert list(tags) == [{"label": title[one["label"]], "score": one["score"]} for one in scored]
    assert tags.keywords == tags.present == [item["label"] for item in tags]
    assert {"Hund", "Katze", "Flugzeug"} <= set(tags.present)
    assert german.about()["shown_as"] == list(german.labels.display)


def test_typed_labels_have_the_scores_of_the_english_ones(photo, caplog):
    backbone = load_backbone("mini")
    english = {item["label"]: item["score"] for item in Tagger(backbone, "dog, cat, tree, house")(photo)}
    with caplog.at_level(logging.WARNING, "mltta"):
        tagger = Tagger(backbone, "Hund, Katze, Baum, Haus")
    assert "look German" in caplog.text
    assert '"Hund" as "dog"' in tagger.notes[0]
    found = {item["label"]: item["score"] for item in tagger(photo)}
    title = {"dog": "Hund", "cat": "Katze", "tree": "Baum", "house": "Haus"}
    assert found == {title[label]: score for label, score in english.items()}
    caplog.clear()
    with caplog.at_level(logging.WARNING, "mltta"):
        Tagger(backbone, labels=["dog", "cat"], method="clip")
    assert not caplog.records
