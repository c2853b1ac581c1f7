"""Captions read from the files people have, and errors that say where they are wrong."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path

import pytest

from mltta.captions.generate.build import generate_captions
from mltta.captions.generate.sampling import ComposerEngine
from mltta.captions.read import read_texts
from mltta.errors import CaptionError, MlttaError
from mltta.labels import LabelSet

WANT = ["A dog.", "Two cats on a sofa.", "Ein Hund über dem Sofa"]
LINES = "\ufeffA dog.\r\n\r\n  Two cats  on a sofa.\r\nA dog.\r\nEin Hund über dem Sofa\r\n"
ROWS = [{"id": i, "caption": text} for i, text in enumerate([*WANT, "", WANT[0]])]
TABLE = 'id,caption\n0,A dog.\n1,"Two cats\non a sofa."\n\n2,Ein Hund über dem Sofa\n3,A dog.\n'
FILES = {
    "lines.txt": LINES,
    "rows.jsonl": "\n".join(map(json.dumps, ROWS)) + "\n",
    "strings.jsonl": "\n".join(map(json.dumps, [*WANT, WANT[1], " "])),
    "table.csv": TABLE,
    "table.tsv": TABLE.replace(",", "\t"),
    "captions.json": json.dumps({"images": [], "annotations": ROWS}),
    "list.json": json.dumps([*WANT, "", WANT[2]]),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_file_gives_the_same_captions(name: str, packed: bool, tmp_path: Path, caplog) -> None:
    path = tmp_path / (name + ".gz" * packed)
    data = FILES[name].encode()
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    with caplog.at_level(logging.INFO, "mltta"):
        assert read_texts(path) == WANT
    assert f"{path}: 3 captions; skipped 1 blank and 1 repeated" in caplog.text


def test_a_field_or_column_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"caption": "no", "said": "A dog."}\n')
    (tmp_path / "a.csv").write_text("caption,said\nno,A dog.\n")
    assert read_texts(tmp_path / "a.jsonl", "said") == read_texts(tmp_path / "a.csv", "said") == ["A dog."]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", b'"A dog."\n\n{"caption": \n', "a.jsonl, line 3: not valid JSON"),
        (
            "a.jsonl",
            b'{"caption": "x"}\n{"label": 1, "words": ""}',
            "line 2: no field 'caption' or 'text'; available:",
        ),
        ("a.jsonl", b'{"caption": 3}', "line 1: the caption is not a string: 3"),
        ("a.csv", b"id,words\n1,A dog.\n", "line 1: no column 'caption' or 'text'; available: id, words"),
        ("a.csv", b"id,caption\n1,A dog.\n2\n", "line 3: only 1 cells, but captions are in column 2"),
        ("a.json", b'{"annotations":\n[}', "a.json, line 2: not valid JSON"),
        ("a.json", b'{"images": []}', "neither a list nor COCO"),
        (
            "a.json",
            b'{"annotations": [{"caption": "x"}, {"bbox": 1}]}',
            "entry 2: no field 'caption' or 'text'; available:",
        ),
        ("a.txt", b"A dog.\n\xff\xfe\n", "a.txt, line 2: not valid UTF-8"),
        ("a.txt", b"\n \n", "all are blank"),
        ("a.jsonl", b"", "contains no captions"),
        ("a.txt.gz", b"A dog.", "not a complete .gz file"),
        ("a.txt.gz", gzip.compress(b"A dog." * 99, mtime=0)[:-12], "not a complete .gz file"),
    ],
)
def test_errors_name_the_file_the_line_and_the_fields_there_are(tmp_path, name, content, reason) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CaptionError, match=re.escape(reason)):
        read_texts(tmp_path / name)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaptionError, match="no such caption file"):
        read_texts(tmp_path / "none.txt")
    with pytest.raises(CaptionError, match="is a folder"):
        read_texts(tmp_path)


def test_a_generated_file_is_read_packed_too_and_half_characters_are_left_out(tmp_path: Path) -> None:
    labels = LabelSet.of(["dog", "cat"])
    kept = generate_captions(labels, ComposerEngine(labels), tmp_path / "a.jsonl", 3).captions
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert read_texts(tmp_path / "a.jsonl") == read_texts(tmp_path / "a.jsonl.gz") == kept
    (tmp_path / "b.jsonl").write_text('{"caption": "A dog \\ud83d here."}')
    assert read_texts(tmp_path / "b.jsonl") == ["A dog here."]


def test_old_line_ends_are_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"A dog.\rA cat.\r\nA bus.\n")
    assert read_texts(tmp_path / "a.txt") == ["A dog.", "A cat.", "A bus."]


def test_a_hugging_face_dataset_by_split_and_column(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    several = datasets.Dataset.from_dict({"text": WANT, "many": [WANT[:2], [], [WANT[2], None]]})
    datasets.DatasetDict({"train": several, "test": several.select([0])}).save_to_disk(str(tmp_path))
    assert read_texts(f"hf:{tmp_path}:train") == read_texts(f"hf:{tmp_path}:train:many") == WANT
    assert read_texts(f"hf:{tmp_path}:test") == WANT[:1]
    several.save_to_disk(str(tmp_path / "one"))
    assert read_texts(tmp_path / "one") == WANT
    with pytest.raises(CaptionError, match="no column 'said'; available: text, many"):
        read_texts(tmp_path / "one", "said")
    with pytest.raises(MlttaError, match="several splits; choose from train, test"):
        read_texts(f"hf:{tmp_path}")
