"""Claims about label sets: the built-in ones, files, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mltta.captions.nouns import NounFilter
from mltta.errors import LabelError
from mltta.labels import LabelSet
from mltta.labels.sets import label_key


@pytest.mark.parametrize(("name", "size"), [("voc", 20), ("coco", 80), ("nuswide", 81)])
def test_built_in_sets_have_their_published_size(name: str, size: int) -> None:
    labels = LabelSet.load(name)
    assert len(labels) == len(list(labels)) == size
    assert labels.source == name


def test_voc_puts_readable_words_into_prompts_and_keeps_its_tokens_as_names() -> None:
    voc = LabelSet.load("voc")
    changed = {n: t for n, t in zip(voc.names, voc.texts, strict=True) if n != t}
    assert changed == {
        "diningtable": "dining table",
        "pottedplant": "potted plant",
        "tvmonitor": "tv monitor",
    }


def test_original_text_is_the_official_token() -> None:
    voc = LabelSet.load("voc", names="released")
    assert voc.texts == voc.names
    assert voc.texts[10] == "diningtable"


def test_coco_is_in_id_order_and_nuswide_is_alphabetical_with_plurals() -> None:
    coco, nus = LabelSet.load("coco"), LabelSet.load("nuswide")
    assert (coco.names[0], coco.names[9], coco.names[79]) == ("person", "traffic light", "toothbrush")
    assert list(nus.names) == sorted(nus.names)
    assert {"birds", "boats", "swimmers", "whales"} <= set(nus.names)


def test_synonyms_of_the_release() -> None:
    voc, coco, nus = (LabelSet.load(name, words="released") for name in ("voc", "coco", "nuswide"))
    assert voc.synonyms[voc.index("person")] == ("human", "people", "man", "woman", "passenger")
    assert len(people := coco.synonyms[coco.index("person")]) == 67
    assert people[-1] == "author"
    assert voc.synonyms[voc.index("chair")] == ("arm chair", "bench")
    assert nus.synonyms[nus.index("plane")] == ("air craft", "jet", "air plane", "aeroplane")
    assert nus.synonyms[nus.index("cars")] == ("car",)
    assert coco.synonyms[coco.index("zebra")] == ()


@pytest.mark.parametrize("name", ["voc", "coco", "nuswide"])
def test_the_full_word_list_is_the_released_one_and_more_in_every_set(name: str) -> None:
    full, released = LabelSet.load(name), LabelSet.load(name, words="released")
    assert (full.names, full.texts) == (released.names, released.texts)
    more = [own[: len(few)] == few for own, few in zip(full.synonyms, released.synonyms, strict=True)]
    assert all(more)
    said = {label_key(word) for words in (full.names, full.texts) for word in words}
    further = [own[len(few) :] for own, few in zip(full.synonyms, released.synonyms, strict=True)]
    assert not said & {word for words in further for word in words}  # no word of a label names another
    person = full.index("person")
    assert len(further[person]) > 150
    for caption in ("Two girls.", "A boy.", "The pilot smiles."):
        assert NounFilter(full)(caption) == [person]
    assert NounFilter(LabelSet.of(f"{name}:released"))("The pilot smiles.") == []


def test_the_short_name_of_the_released_labels_sets_names_and_words() -> None:
    assert LabelSet.of("VOC:released") == LabelSet.load("voc", names="released", words="released")
    assert LabelSet.of("voc:released").official
    with pytest.raises(LabelError, match="words='few' is neither 'full' nor 'released'"):
        LabelSet.load("voc", words="few")  # type: ignore[arg-type]


def test_one_door_takes_every_kind_of_label_list(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("dog\ncat\n")
    labels = LabelSet.of(["dog", "cat"])
    assert LabelSet.of(labels) is labels
    assert LabelSet.of(("dog", "cat")) == LabelSet.of("dog, cat") == labels
    assert LabelSet.of({"dog": ["pup"], "cat": []}).synonyms == (("pup",), ())
    assert LabelSet.of("VOC") == LabelSet.load("voc")
    assert LabelSet.of(str(path)).names == LabelSet.of(path).names == ("dog", "cat")
    assert LabelSet.of("dog").names == ("dog",)


def test_a_long_comma_separated_string_is_never_taken_for_a_path() -> None:
    assert len(LabelSet.of(",".join(f"label {i}" for i in range(2000)))) == 2000


def test_names_stay_as_written_and_texts_become_readable() -> None:
    labels = LabelSet.of([" Traffic_Light ", "hot   dog", "Jacke/Mantel"])
    assert labels.names == ("Traffic_Light", "hot   dog", "Jacke/Mantel")
    assert labels.texts == ("Traffic Light", "hot dog", "Jacke/Mantel")


def test_index_ignores_case_and_spacing_and_suggests_on_a_miss() -> None:
    labels = LabelSet.of(["Traffic_Light", "dog"])
    assert labels.index("traffic light") == 0
    assert LabelSet.load("voc").index("dining table") == 10
    with pytest.raises(LabelError, match=r"No label 'dgo'.*'dog'"):
        labels.index("dgo")


def test_text_file_with_bom_windows_line_ends_blank_lines_and_synonyms(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes("\ufeffsofa | couch | settee\r\n\r\nBär\r\n".encode())
    labels = LabelSet.of(path)
    assert labels.names == ("sofa", "Bär")
    assert labels.synonyms == (("couch", "settee"), ())
    assert labels.source == str(path)


@pytest.mark.parametrize(
    "content",
    [
        ["tv_set", "sofa"],
        [{"name": "tv_set", "text": "tv set", "synonyms": []}, {"name": "sofa"}],
        {"tv_set": [], "sofa": []},
    ],
)
def test_three_shapes_of_json_mean_the_same(tmp_path: Path, content: object) -> None:
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(content))
    labels = LabelSet.from_file(path)
    assert labels.names == ("tv_set", "sofa")
    assert labels.texts == ("tv set", "sofa")
    assert labels.synonyms == ((), ())


@pytest.mark.parametrize("content", ["id,Label\n1,dog\n2,cat\n", "name,id\ndog,1\ncat,2\n", "dog,1\ncat,2\n"])
def test_csv_column_is_called_label_or_name_or_is_the_first(tmp_path: Path, content: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(content)
    assert LabelSet.from_file(path).names == ("dog", "cat")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "empty"),
        ("", "empty"),
        (["dog", "  "], "Label 2 .* is blank"),
        ("dog,,cat", "Label 2 .* is blank"),
        (["dog", 3], "Label 2 .* not a string: 3"),
        ({"dog": "pup"}, "synonyms of 'dog' must be a list"),
        ({"dog": [""]}, "synonyms of 'dog' must be a list"),
        (7, "Cannot read labels from a int"),
        ({"dog", "cat"}, "Cannot read labels from a set"),
        ("no/such/place", "No such file: no/such/place"),
        ("my_labels.txt", "No such file: my_labels.txt.*everyday, coco, voc, nuswide"),
    ],
)
def test_unusable_labels_are_refused_with_the_reason(labels: object, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        LabelSet.of(labels)  # type: ignore[arg-type]


def test_a_label_given_twice_is_taken_once_with_a_word(caplog) -> None:
    labels = LabelSet.of(["dog", "traffic light | signal", "Traffic_ Light | stop light"])
    assert labels.names == ("dog", "traffic light")
    assert labels.synonyms == ((), ("signal", "stop light"))
    assert "'Traffic_ Light | stop light'" not in caplog.text
    assert "removed 1 duplicate(s): 'Traffic_ Light'" in caplog.text


def test_a_list_as_people_write_it_down_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    text = (
        "\ufeff# animals\n\n- cat | kitty\n* dog   # the usual kind\n• bird\n1. cow\n12) C# book\n 7up can\n"
    )
    path.write_text(text, encoding="utf-8")
    labels = LabelSet.of(path)
    assert labels.names == ("cat", "dog", "bird", "cow", "C# book", "7up can")
    assert labels.synonyms[0] == ("kitty",)


def test_unknown_built_in_set_lists_the_known_ones() -> None:
    with pytest.raises(LabelError, match=r"'imagenet'.*everyday, coco, voc, nuswide"):
        LabelSet.load("imagenet")


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\x1a\n\x00", "Bär\n".encode("latin-1"), "dog".encode("utf-16")]
)
def test_a_file_that_is_not_utf8_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.txt"
    path.write_bytes(content)
    with pytest.raises(LabelError, match="not UTF-8 text"):
        LabelSet.of(path)


@pytest.mark.parametrize("content", ['["dog",', '"dog"', "[]"])
def test_unusable_json_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "labels.json"
    path.write_text(content)
    with pytest.raises(LabelError, match=r"not valid JSON|neither a list|empty"):
        LabelSet.of(path)


def test_a_set_made_by_hand_must_fit_together() -> None:
    with pytest.raises(LabelError, match="2 names, 1 texts"):
        LabelSet(("dog", "cat"), ("dog",), ((), ()))


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("do\x07g", r"a control character \(U\+0007\): 'do\\x07g'"),
        ("dog\x85s", r"a control character \(U\+0085\)"),
        ("hot\ndog", r"a control character \(U\+000A\)"),
        ("d\ud83dog", r"half a surrogate pair \(U\+D83D\)"),
        ("dog\ufdd0", r"not a character \(U\+FDD0\)"),
        ("dog\uffff", r"not a character \(U\+FFFF\)"),
        ("dog\U0010fffe", r"not a character \(U\+10FFFE\)"),
    ],
)
def test_labels_that_no_file_can_hold_are_refused_by_name_whoever_gives_them(label, said, tmp_path):
    """They were written into photos, which other programs then could not read."""
    synonym = {"cat": [label]} if not any(map(str.isspace, label)) else {label: []}
    for given in ([label, "cat"], f"cat, {label}", {label: ["x"]}, synonym):
        with pytest.raises(LabelError, match=said):
            LabelSet.of(given)
    with pytest.raises(LabelError, match=said):
        LabelSet(("x",), (label,), ((),))
    file = tmp_path / "labels.json"
    file.write_text(json.dumps([label, "cat"]))
    with pytest.raises(LabelError, match=said):
        LabelSet.of(file)


@pytest.mark.parametrize(
    "label", ["Bär", "狗", "🐶", "c\u0301", "\ufffd", "dog\u00a0house", "👩\u200d🚀", "\ue000"]
)
def test_every_other_character_may_be_in_a_label(label):
    assert LabelSet.of([label]).names == (label,)


@pytest.mark.parametrize("labels", [["a" * 10**7], "a" * 10**7, {"dog": ["b" * 10**7]}, ["a b " * 10**6]])
def test_a_label_of_millions_of_characters_is_refused_at_once(labels, tmp_path):
    start = time.monotonic()
    with pytest.raises(LabelError, match=r"characters; the limit is 1,000") as caught:
        LabelSet.of(labels)
    assert time.monotonic() - start < 1
    assert len(str(caught.value)) < 200
    file = tmp_path / "labels.txt"
    file.write_text("a" * 10**7)
    with pytest.raises(LabelError, match=r"line of labels has 10,000,000 characters"):
        LabelSet.of(file)
