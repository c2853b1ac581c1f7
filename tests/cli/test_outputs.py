"""Several outputs at once, outputs that replace others, and streams that end when the run does."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from mltta.errors import MlttaError
from mltta.output.tags_file import Output
from mltta.storage.journal import sealed_line
from tests.cli.test_cli import MODEL, mltta
from tests.safety.world import photo

CLIP = ["--labels", "dog, cat", *MODEL, "--method", "clip", "--threshold", "0.01"]


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed, name in enumerate("abc"):
        photo(seed).save(folder / f"{name}.png")
    return folder


def record(name: str) -> dict:
    return {"image": name, "present": ["dog"], "labels": [{"label": "dog", "score": 0.5}]}


def test_two_outputs_are_both_written_and_resumed_from_one_journal(photos, tmp_path):
    table, page = tmp_path / "t.csv", tmp_path / "t.html"
    line = ["tag", photos, *CLIP, "-o", table, "-o", page]
    assert f"written to {table}, {page}" in mltta(*line).stderr
    assert [file.name for file in tmp_path.glob(".*")] == [".t.csv.mltta"]
    photo(9).save(photos / "d.png")
    assert "1 image tagged" in mltta(*line).stderr
    for name in ("t.csv", "t.html"):
        (tmp_path / "alone").mkdir(exist_ok=True)
        mltta("tag", photos, *CLIP, "-o", tmp_path / "alone" / name)
    assert table.read_bytes() == (tmp_path / "alone/t.csv").read_bytes()
    assert page.read_text().count('"name":') == 4
    with table.open(newline="") as file:
        assert len({row["image"] for row in csv.DictReader(file)}) == 4


def test_an_output_that_is_added_is_written_without_tagging_again(photos, tmp_path):
    table, lines = tmp_path / "t.csv", tmp_path / "t.jsonl"
    mltta("tag", photos, *CLIP, "-o", table)
    again = mltta("tag", photos, *CLIP, "-o", lines, "-o", table).stderr
    assert "0 images tagged; 3 were already done" in again
    assert len(lines.read_text().splitlines()) == 3


def test_several_outputs_need_files_of_different_names_and_a_format_each(photos, tmp_path):
    two = ["tag", photos, *CLIP, "-o", tmp_path / "t.csv", "-o"]
    assert "--format needs a single output" in mltta(*two, tmp_path / "t.json", "-f", "csv", check=2).stderr
    assert "a different file name" in mltta(*two, tmp_path / "sub/t.csv", check=2).stderr
    assert "the only output" in mltta(*two, "/dev/null", "-q", check=2).stderr


@pytest.mark.parametrize("name", ["t.csv", "t.json"])
def test_with_overwrite_the_old_file_stays_until_the_new_one_is_complete(photos, tmp_path, monkeypatch, name):
    from mltta.cli.progress import Progress

    out = tmp_path / name
    mltta("tag", photos, *CLIP, "-o", out)
    old, seen, advance = out.read_bytes(), [], Progress.advance

    def look(self: Progress) -> None:
        advance(self)
        seen.append(out.read_bytes())
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", look)
    line = ["tag", photos, *CLIP, "--seed", "3", "-o", out]
    said = mltta(*line, "--overwrite", check=130).stderr
    assert seen == [old, old]
    assert out.read_bytes() == old, "what is there is worth more than half of what is to come"
    assert "without --overwrite" in said
    assert "written to" not in said
    assert "1 image tagged" in mltta(*line).stderr
    monkeypatch.undo()
    mltta(*line[:-1], tmp_path / f"whole-{name}")
    assert out.read_bytes() == (tmp_path / f"whole-{name}").read_bytes()


@pytest.mark.parametrize("format", ["json", "coco"])
def test_watching_prints_one_json_document_that_ends_with_the_run(photos, tmp_path, monkeypatch, format):
    rounds = []

    def wait(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            shutil.copy(photos / "a.png", photos / "d.png")
        elif len(rounds) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("mltta.cli.tagging.sleep", wait)
    held = json.loads(mltta("tag", photos, *CLIP, "--watch", "-f", format).stdout)
    assert len(held if format == "json" else held["images"]) == 4


def test_a_journal_of_version_0_2_0_is_refused_by_name_and_overwrite_starts_over(tmp_path):
    out, journal = tmp_path / "t.csv", tmp_path / ".t.csv.mltta"
    old = sealed_line({"format": "mltta-tags-1", "settings": {"mltta": "0.2.0"}})
    old += sealed_line({"stamp": None, "image": "a.jpg", "present": ["cat"], "labels": []})
    journal.write_bytes(old)
    with pytest.raises(
        MlttaError, match=r"journal of mltta 0\.2\.0, which this version cannot resume; choose another -o"
    ):
        Output({out: "csv"}).__enter__()
    assert journal.read_bytes() == old
    assert not list(tmp_path.glob("*.lock"))
    with Output({out: "csv"}, overwrite=True) as sink:
        sink.begin({}, ["cat"])
        sink.add(record("b.jpg"), None)
        sink.finish(["b.jpg"])
    with Output({out: "csv"}) as sink:
        assert list(sink.journal.kept) == ["b.jpg"]


def test_two_outputs_each_grow_and_each_is_checked(tmp_path):
    one, two = tmp_path / "t.csv", tmp_path / "t.jsonl"
    formats = {one: "csv", two: "jsonl"}
    with Output(formats) as sink:
        sink.begin({}, ["dog"])
        sink.grow([])
        sink.add(record("a"), None)
        assert (b"a,dog" in one.read_bytes(), json.loads(two.read_text())["image"]) == (True, "a")
        # a kill: nothing is written anew at the end
    with Output(formats) as sink:
        assert sink.done("a", None)
    two.write_text("notes\n")
    with pytest.raises(MlttaError, match=r"t\.jsonl was changed after"):
        Output(formats).__enter__()
    with Output({one: "csv"}) as sink:
        assert sink.done("a", None)
