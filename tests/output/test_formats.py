"""Tags in every format: what a file holds, and that other programs can read it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from mltta.errors import ConfigError
from mltta.output.exchange import coco_text, write_fiftyone
from mltta.output.formats import Page, file_of, format_of, table_lines, text_format
from mltta.output.parquet import write_parquet
from mltta.output.screen import Screen

RECORDS = [
    {
        "image": "a.jpg",
        "present": ["dog"],
        "labels": [{"label": "dog", "score": 0.75}, {"label": "cat", "score": 0.25}],
    },
    {"image": "b.jpg", "present": [], "labels": []},
    {"image": "c\udce4.jpg", "error": "c\udce4.jpg: damaged"},
]


def page(path: Path, wide: bool = False) -> Page:
    return Page(path, len(RECORDS), ["cat", "dog"], wide)


def text(format: str, wide: bool = False) -> str:
    lines = text_format(format, wide)
    assert lines is not None
    return "".join(lines.pieces(RECORDS))


def test_the_suffix_says_the_format_unless_it_is_said():
    names = ("a.csv", "a.JSON", "a.jsonl", "a.parquet", "a.html", "a.txt", "a")
    want = ["csv", "json", "jsonl", "parquet", "html", "table", "table"]
    assert [format_of(None, Path(name)) for name in names] == want
    assert format_of("jsonl", Path("a.csv")) == "jsonl"
    assert format_of(None, None) == "table"
    with pytest.raises(ConfigError, match=r"unknown format \.xlsx\. Use \.csv"):
        format_of(None, Path("a.xlsx"))
    assert file_of("fiftyone", Path("out")) == Path("out/labels.json")


def test_csv_has_a_row_a_label_or_a_row_an_image():
    long = list(csv.DictReader(io.StringIO(text("csv"), newline="")))
    assert [(row["image"], row["label"], row["score"], row["present"]) for row in long[:3]] == [
        ("a.jpg", "dog", "0.750000", "1"),
        ("a.jpg", "cat", "0.250000", "0"),
        ("b.jpg", "", "", ""),
    ]
    wide = list(csv.DictReader(io.StringIO(text("csv", wide=True), newline="")))
    assert len(wide) == 3
    assert wide[0] == {
        "image": "a.jpg",
        "present": "dog",
        "labels": "dog; cat",
        "scores": "0.750000; 0.250000",
        "error": "",
    }
    assert wide[2]["error"] == "c\\udce4.jpg: damaged", "a name that is not UTF-8 does not spoil the file"


def test_json_and_json_lines_hold_the_same_and_are_utf_8():
    lines = [json.loads(line) for line in text("jsonl").encode().splitlines()]
    assert json.loads(text("json").encode()) == lines
    assert lines[0] == RECORDS[0]
    assert lines[2] == RECORDS[2], "JSON can say a byte that is not UTF-8"


@pytest.mark.parametrize("wide", [False, True])
def test_parquet_is_read_by_pyarrow_and_is_the_same_file_each_time(tmp_path, wide):
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("one", "two"):
        write_parquet(tmp_path / name, iter(RECORDS), page(tmp_path / name, wide))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    rows = parquet.read_table(tmp_path / "one").to_pylist()
    if wide:
        assert rows[0] == {
            "image": "a.jpg",
            "present": ["dog"],
            "labels": ["dog", "cat"],
            "scores": [0.75, 0.25],
            "error": None,
        }
        assert len(rows) == 3
    else:
        assert rows[1] == {"image": "a.jpg", "label": "cat", "score": 0.25, "present": False, "error": None}
        assert rows[2] == {"image": "b.jpg", "label": None, "score": None, "present": None, "error": None}
        assert len(rows) == 4


def test_coco_has_images_categories_and_an_annotation_for_every_label():
    held = json.loads(coco_text(RECORDS, page(Path("x"))))
    assert held["images"] == [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}]
    assert held["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert held["annotations"] == [
        {"id": 1, "image_id": 1, "category_id": 2, "score": 0.75},
        {"id": 2, "image_id": 1, "category_id": 1, "score": 0.25},
    ]


def test_pycocotools_opens_the_coco_file(tmp_path):
    coco = pytest.importorskip("pycocotools.coco")
    (tmp_path / "tags.json").write_text(coco_text(RECORDS, page(tmp_path)), encoding="utf-8")
    held = coco.COCO(str(tmp_path / "tags.json"))
    assert held.getImgIds(catIds=held.getCatIds(["dog"])) == [1]


def test_fiftyone_gets_full_paths_each_with_all_its_labels(tmp_path):
    write_fiftyone(tmp_path / "labels.json", RECORDS, page(tmp_path / "labels.json"))
    held = json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))
    assert held["classes"] == ["cat", "dog"]
    full = str(Path("a.jpg").absolute())
    assert held["labels"][full][0] == {"label": "dog", "confidence": 0.75}
    assert held["labels"][str(Path("b.jpg").absolute())] == []
    assert (tmp_path / "data").is_dir(), "FiftyOne asks for it"


def test_labels_in_brackets_are_no_markup_and_bars_can_be_of_another_sign():
    record = {
        "image": "[red]x[/red].jpg",
        "present": ["[bold]"],
        "labels": [{"label": "[bold]", "score": 0.5}],
    }
    shown = table_lines(bar="#").entry(record)
    assert "[red]x[/red].jpg" in shown
    assert "0.50  ##########  [bold]" in shown


def test_a_screen_of_ascii_gets_bars_of_its_own_and_labels_escaped(monkeypatch):
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding="ascii", newline="")
    monkeypatch.setattr("sys.stdout", stream)
    with Screen("table") as screen:
        screen.begin({}, ["кот"])
        screen.add({"image": "a.jpg", "present": ["кот"], "labels": [{"label": "кот", "score": 0.5}]}, None)
        screen.finish([])
    assert b"0.50  ##########  \\u043a\\u043e\\u0442" in held.getvalue()
