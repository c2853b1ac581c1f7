"""What is shown is decided once: screen, files, keywords, copies, pictures and the summary say the same."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import MODEL, mltta
from tests.safety.world import photo

ROOT = Path(__file__).parents[2]
CLIP = ["--labels", "dog, cat, boat", *MODEL, "--method", "clip"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(3):
        photo(seed).save(folder / f"{seed}.jpg")
    return folder


@pytest.mark.parametrize("show", [[], ["--threshold", "0.9"], ["--threshold", "0"], ["--top-k", "1"]])
def test_copies_and_keywords_that_are_announced_are_those_of_the_labels_printed(photos, tmp_path, show):
    out = tmp_path / "o"
    line = [
        "--keywords",
        "sidecar",
        "--keywords-from",
        "0.4",
        "--copy-to",
        out / "{label}",
        "--dry-run",
        "-f",
        "jsonl",
    ]
    done = mltta("tag", photos, *CLIP, *show, *line)
    records = [json.loads(row) for row in done.stdout.splitlines()]
    for record in records:
        assert [item["label"] for item in record["labels"]] == record["present"]
    copies = {(own["image"], label) for own in records for label in own["present"]}
    announced = re.findall(r"^(.*) -> (.*)$", done.stderr, re.MULTILINE)
    assert {(image, Path(target).parent.name) for image, target in announced} == copies
    sidecars = re.findall(r"^(.*)\.xmp: (.*)$", done.stderr, re.MULTILINE)
    sure = {own["image"]: [one["label"] for one in own["labels"] if one["score"] >= 0.4] for own in records}
    assert dict(sidecars) == {image: ", ".join(labels) for image, labels in sure.items() if labels}
    assert f"{len(copies):,} {'copy' if len(copies) == 1 else 'copies'} would be made" in done.stderr
    assert ("no labels found" in done.stderr) == (not copies)


def test_with_threshold_0_the_summary_does_not_say_that_nothing_was_found(photos):
    done = mltta("tag", photos, *CLIP, "--threshold", "0")
    assert "most frequent: " in done.stderr
    assert "none of the labels" not in done.stderr


def test_every_file_format_holds_the_labels_shown_and_no_others(photos, tmp_path):
    line = ["tag", photos, *CLIP, "--top-k", "2", "-q", "-o"]
    for name in ("t.jsonl", "t.csv", "t.html"):
        mltta(*line, tmp_path / name)
    want = {own["image"]: own["present"] for own in map(json.loads, (tmp_path / "t.jsonl").open())}
    assert {len(labels) for labels in want.values()} == {2}
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["present"] for row in rows} == {"1"}
    assert [(row["image"], row["label"]) for row in rows] == [(i, one) for i in want for one in want[i]]
    (listed,) = re.findall(r'class="rows">(\[.*?\])</script>', (tmp_path / "t.html").read_text(), re.DOTALL)
    assert [len(row["labels"]) for row in json.loads(listed)] == [2, 2, 2]


@pytest.mark.parametrize(("threshold", "needed"), [("0.99", r"0\.99"), ("0.995", r"0\.995")])
def test_a_photo_without_labels_says_why_on_the_screen_and_in_the_gallery(
    photos, tmp_path, threshold, needed
):
    done = mltta("tag", photos, *CLIP, "--threshold", threshold)
    why = rf"No label scored at least {needed}\. Highest: (?:dog|cat) 0\.\d\d"
    assert len(re.findall(rf"^  {why}$", done.stdout, re.M)) == 3
    mltta(
        "tag", photos, *CLIP, "--threshold", threshold, "-o", tmp_path / "t.html", "-o", tmp_path / "t.jsonl"
    )
    assert len(re.findall(rf'"note":"{why}"', (tmp_path / "t.html").read_text(encoding="utf-8"))) == 3
    assert "note" not in (tmp_path / "t.jsonl").read_text(encoding="utf-8"), (
        "the format of files is unchanged"
    )


def test_a_picture_has_bars_of_the_labels_shown_only():
    from PIL import Image

    from mltta.output.picture import annotate
    from mltta.tagger import Tags

    items = [{"label": "dog", "score": 0.8}, {"label": "cat", "score": 0.2}]
    image = Image.new("RGB", (64, 48), "white")
    both, one = (annotate(image, Tags(items, present=names)) for names in (["dog", "cat"], ["dog"]))
    alone = annotate(image, Tags(items[:1], present=["dog"]))
    assert one.tobytes() == alone.tobytes() != both.tobytes()


def test_pictures_of_a_photo_without_labels_say_why_and_are_not_grayed():
    from PIL import Image

    from mltta.output.picture import annotate, where_sheet
    from mltta.tagger import Tags

    image = Image.new("RGB", (320, 240), "#2266aa")
    why = Tags([{"label": "dog", "score": 0.2}], note="No label scored at least 0.30. Highest: dog 0.20")
    for draw, box, beside in (
        (annotate, (0, 0, 640, 480), (640, 0, 1020, 480)),
        (where_sheet, (16, 16, 336, 256), (0, 296, 400, 320)),
    ):
        picture = draw(image, why)
        assert picture.crop(box).getextrema() == ((34, 34), (102, 102), (170, 170))
        assert (np.asarray(picture.crop(beside).convert("L")) < 120).sum() > 300, "the sentence"


def test_a_sheet_of_heat_maps_begins_with_the_photo_and_ends_with_a_legend():
    from PIL import Image

    from mltta.output.picture import annotate, where_sheet
    from mltta.tagger import Tags

    image, heat = Image.new("RGB", (320, 240), "#2266aa"), np.zeros((16, 16), np.float32)
    heat[:, 8:] = 1
    found = Tags([{"label": "dog", "score": 0.8}], present=["dog"], where={"dog": heat})
    sheet = where_sheet(image, found)
    assert sheet.getpixel((100, 100)) == (34, 102, 170), "the photo itself"
    cold, warm = sheet.getpixel((336 + 60, 100)), sheet.getpixel((336 + 280, 100))
    assert cold[0] == cold[1] == cold[2], "gray where the label was not found"
    assert warm[0] > warm[1] + 30, "red where it was"
    assert np.asarray(sheet.crop((0, 296, *sheet.size)).convert("L")).min() < 180, "a legend"
    assert annotate(image, found).getpixel((100, 100)) == (34, 102, 170), (
        "the picture with bars is not grayed"
    )
