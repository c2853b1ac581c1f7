"""What `mltta tag` says while it works and when it ends, and what it does with photos besides."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from mltta.cli import progress
from mltta.cli.progress import Closing, rate
from mltta.output.keywords.jpeg import XMP, Jpeg
from mltta.output.keywords.write import sidecar_of
from mltta.output.keywords.xmp import Packet
from tests.cli.test_cli import MODEL, mltta
from tests.safety.world import photo

CLIP = ["--labels", "dog, cat", *MODEL, "--method", "clip"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(4):
        photo(seed).save(folder / f"{seed}.jpg")
    return folder


def test_a_log_gets_a_line_now_and_then_and_a_summary(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.0)
    said = mltta("tag", photos, *CLIP, "-o", tmp_path / "tags.csv").stderr
    assert re.search(r"tagging [123] of 4, \S+ per second\n", said)
    assert "4 images tagged in " in said
    assert f"written to {tmp_path / 'tags.csv'}" in said
    assert mltta("tag", photos, *CLIP, "-o", tmp_path / "more.csv", "--quiet").stderr == ""
    assert mltta("tag", photos / "0.jpg", *CLIP).stderr == "", "one photo on the screen speaks for itself"


def test_the_summary_tells_what_was_found_most_and_what_failed(capsys):
    closing = Closing(before=3)
    for number in range(1200):
        closing.count({"image": f"{number}", "present": ["dog", "cat"] if number % 2 else ["dog"]})
    closing.count({"image": "x", "error": "x.jpg: damaged"})
    closing.seconds = 4000
    closing.tell("tags.csv", quiet=False)
    assert capsys.readouterr().err.splitlines() == [
        "1,200 images tagged in 1 h 6 min, 0.3 per second; 3 were already done",
        "most frequent: dog 1,200, cat 600",
        "written to tags.csv",
        "1 of 1,204 could not be tagged:",
        "  x.jpg: damaged",
    ]
    assert [rate(n, 10) for n in (1234, 55, 0.5)] == ["123 per second", "5.5 per second", "3.0 per minute"]


def test_every_suffix_gives_a_file_of_its_kind(photos, tmp_path):
    for name in ("t.csv", "t.json", "t.jsonl", "t.parquet", "t.html", "t.txt"):
        mltta("tag", photos, *CLIP, "-o", tmp_path / name, "-q")
    mltta("tag", photos, *CLIP, "-o", tmp_path / "coco.json", "-f", "coco", "-q")
    mltta("tag", photos, *CLIP, "-o", tmp_path / "export", "-f", "fiftyone", "-q")
    assert (tmp_path / "t.csv").read_text().startswith("image,label,score,present,error")
    assert len(json.loads((tmp_path / "t.json").read_text())) == 4
    assert (tmp_path / "t.parquet").read_bytes()[:4] == b"PAR1"
    assert (tmp_path / "t.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(photos / "0.jpg") in (tmp_path / "t.txt").read_text(encoding="utf-8")
    assert len(json.loads((tmp_path / "coco.json").read_text())["images"]) == 4
    assert len(json.loads((tmp_path / "export/labels.json").read_text())["labels"]) == 4
    on_screen = mltta("tag", photos, *CLIP, "-f", "coco").stdout
    assert json.loads(on_screen) == json.loads((tmp_path / "coco.json").read_text())


def test_without_pyarrow_parquet_says_what_to_install(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = mltta("tag", photos, *CLIP, "-o", tmp_path / "t.parquet", check=2).stderr
    assert "pip install 'mltta[parquet]'" in said


@pytest.mark.parametrize("how", ["sidecar", "embed"])
def test_keywords_come_from_the_labels_and_go_with_undo(tmp_path, how):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("cat.jpg", "dogs.jpg"):
        held = Image.open(ROOT / "examples/photos" / name)
        held.save(folder / name)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    line = [
        "tag",
        folder,
        "-l",
        "dog, cat, boat",
        "--method",
        "clip",
        "-o",
        tmp_path / "tags.csv",
        "--keywords",
        how,
        "--keywords-from",
        "0.3",
    ]
    dry = mltta(*line, "--dry-run").stderr
    assert "keywords would be written" in dry
    assert ": cat" in dry
    assert {file: file.read_bytes() for file in folder.iterdir()} == before
    said = mltta(*line).stderr
    assert "0 images tagged; 2 were already done" in said, "tags that are known are not worked out again"
    assert "2 photos; `mltta keywords undo` removes them" in said
    for name, label in (("cat.jpg", "cat"), ("dogs.jpg", "dog")):
        file = folder / name
        packet = sidecar_of(file).read_bytes() if how == "sidecar" else Jpeg.of(file.read_bytes()).notes(XMP)
        assert Packet(packet, "x").subjects == [label]
    assert "0 images tagged; 2 were already done" in mltta(*line).stderr, (
        "a photo with keywords is the same photo"
    )
    undone = mltta("keywords", "undo", folder)
    assert "cat.jpg: cat" in undone.stdout
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_hierarchies_roots_languages_and_keywords_of_the_photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    shutil.copy(ROOT / "examples/photos/cat.jpg", folder)
    line = ["tag", folder, "--method", "clip", "--keywords", "adobe", "--keywords-from", "0.3"]
    mltta(*line, "-l", "animal > cat, animal > dog, vehicle|boat", "--keyword-root", "Auto")
    packet = Packet((folder / "cat.xmp").read_bytes(), "x")
    assert packet.items("hierarchy") == ["Auto|animal|cat"]
    assert packet.subjects == ["Auto", "animal", "cat"]
    assert (
        "chat"
        in mltta("tag", folder, "--method", "clip", "-l", "Katze, Hund, Boot", "--language", "fr").stdout
    )
    assert "no keywords" in mltta("tag", folder, "-l", "from-photos", "--method", "clip", check=2).stderr
    (folder / "cat.xmp").write_bytes(packet.content.replace(b"mltta:added", b"mltta:other"))
    for _ in range(2):  # the second run reads the journal of the first
        mltta("tag", folder, "-l", "from-photos", "--method", "clip", "-o", tmp_path / "t.jsonl")
        mltta("tag", folder, *CLIP, "--language", "de", "-o", tmp_path / "de.jsonl")
    assert json.loads((tmp_path / "t.jsonl").read_text())["present"] == ["cat"]


def test_photos_are_sorted_by_label_and_what_is_sorted_is_no_photo_to_tag(photos, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for file in photos.iterdir():
        (tree / file.name).write_bytes(file.read_bytes())
    line = ["tag", tree, *CLIP, "-o", tmp_path / "tags.jsonl", "--copy-to", tree / "by label/{label}"]
    mltta(*line)
    records = [json.loads(row) for row in (tmp_path / "tags.jsonl").read_text().splitlines()]
    want = {
        tree / "by label" / label / Path(own["image"]).name for own in records for label in own["present"]
    }
    assert set((tree / "by label").rglob("*.jpg")) == want
    assert "0 images tagged; 4 were already done" in mltta(*line).stderr
    among = ["tag", tree, *CLIP, "--copy-to", tree / "{label}"]
    assert "need a folder other than the one being tagged" in mltta(*among, check=2).stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_device_is_told_and_a_reader_that_has_seen_enough_ends_it_quietly(photos, tmp_path):
    line = ["tag", photos, *CLIP, "-f", "jsonl", "--threshold", "0", "-o"]
    full = mltta(*line, "/dev/full", check=2).stderr
    assert "No space left" in full
    assert "Traceback" not in full
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["head", "-c", "1", str(tmp_path / "pipe")], stdout=subprocess.DEVNULL):
        assert mltta(*line, tmp_path / "pipe", check=1).stderr == ""


def test_help_has_what_is_needed_first_in_front():
    said = mltta("tag", "--help").stdout
    first, rest = said.split("Labels and captions")
    assert len(first.splitlines()) < 95
    for name in ("--labels", "--output", "--top-k", "--watch", "--overwrite", "--keywords"):
        assert name in first
    for name in ("--template", "--teacher", "--dtype"):
        assert name in rest
        assert name not in first
