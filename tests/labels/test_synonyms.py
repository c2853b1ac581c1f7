"""Further words for labels, from a file and from WordNet."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from mltta.captions.nouns import label_matches
from mltta.errors import ConfigError, LabelError
from mltta.labels import LabelSet
from mltta.labels.synonyms import add_synonyms, read_synonyms, wordnet_synonyms

LABELS = LabelSet.of({"sofa": ["couch"], "traffic_light": [], "cat": []})
WORDS = {"Sofa": ["settee", "couch"], "traffic light": ["stop light"]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("words.json", '{"Sofa": ["settee", "couch"], "traffic light": ["stop light"]}'),
        ("words.csv", "Sofa,settee,couch\ntraffic light,stop light\n"),
        ("words.csv", "\ufefflabel,word\nSofa, settee\n\nSofa,couch,\ntraffic light,stop light\n"),
    ],
)
def test_words_of_a_file_are_added_to_those_there_are(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_synonyms(tmp_path / name) == WORDS
    more = add_synonyms(LABELS, WORDS)
    assert more.synonyms == (("couch", "settee"), ("stop light",), ())
    assert label_matches(["A settee by a stop light."], more) == [[0, 1]]
    assert label_matches(["A settee by a stop light."], LABELS) == [[]]


def test_a_word_for_no_label_is_refused_with_the_label_that_may_be_meant() -> None:
    with pytest.raises(LabelError, match=r"No label 'sofas'.*Did you mean 'sofa'"):
        add_synonyms(LABELS, {"sofas": ["settee"]})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("words.json", "{", "not valid JSON"),
        ("words.json", "[]", "does not contain a JSON object"),
        ("words.json", '{"sofa": "settee"}', "'sofa' needs a list of words, not 'settee'"),
        ("words.json", '{"sofa": [1]}', "'sofa' needs a list of words"),
        ("words.csv", "sofa\n", "'sofa' needs a list of words"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(LabelError, match=re.escape(reason)):
        read_synonyms(tmp_path / name)
    with pytest.raises(LabelError, match=r"No such file.*JSON"):
        read_synonyms(tmp_path / "none.json")


def test_wordnet_without_its_package_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wn", None)
    with pytest.raises(ConfigError, match=r"pip install mltta\[wordnet\]"):
        wordnet_synonyms(LABELS)


LEXICON = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE LexicalResource SYSTEM "http://globalwordnet.github.io/schemas/WN-LMF-1.0.dtd">
<LexicalResource xmlns:dc="http://purl.org/dc/elements/1.1/">
  <Lexicon id="tiny" label="a few words" language="en" email="a@b.c" license="CC0" version="1">
    <LexicalEntry id="tiny-sofa"><Lemma writtenForm="sofa" partOfSpeech="n"/>
      <Sense id="tiny-sofa-1" synset="tiny-1"/></LexicalEntry>
    <LexicalEntry id="tiny-lounge"><Lemma writtenForm="lounge" partOfSpeech="n"/>
      <Sense id="tiny-lounge-1" synset="tiny-1"/></LexicalEntry>
    <LexicalEntry id="tiny-cat"><Lemma writtenForm="cat" partOfSpeech="n"/>
      <Sense id="tiny-cat-1" synset="tiny-2"/><Sense id="tiny-cat-2" synset="tiny-3"/></LexicalEntry>
    <LexicalEntry id="tiny-true-cat"><Lemma writtenForm="true cat" partOfSpeech="n"/>
      <Sense id="tiny-true-cat-1" synset="tiny-2"/></LexicalEntry>
    <LexicalEntry id="tiny-gossip"><Lemma writtenForm="gossip" partOfSpeech="n"/>
      <Sense id="tiny-gossip-1" synset="tiny-3"/></LexicalEntry>
    <Synset id="tiny-1" ili="" partOfSpeech="n"/>
    <Synset id="tiny-2" ili="" partOfSpeech="n"/>
    <Synset id="tiny-3" ili="" partOfSpeech="n"/>
  </Lexicon>
</LexicalResource>
"""


def test_wordnet_gives_the_words_of_the_first_sense(tmp_path: Path, monkeypatch) -> None:
    wn = pytest.importorskip("wn")
    monkeypatch.setattr(wn.config, "data_directory", tmp_path / "wn")
    with pytest.raises(ConfigError, match="the English WordNet is not installed"):
        wordnet_synonyms(LABELS)
    (tmp_path / "tiny.xml").write_text(LEXICON)
    wn.add(tmp_path / "tiny.xml", progress_handler=None)
    assert wordnet_synonyms(LABELS) == {"sofa": ["lounge"], "cat": ["true cat"]}
