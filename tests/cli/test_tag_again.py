"""The same command goes on where it stopped: after kills, with new photos, and never over what is not its own."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from mltta.storage.lock import locked
from tests.cli.test_cli import MODEL, mltta
from tests.safety.world import VIT, photo

ROOT = Path(__file__).parents[2]
CLIP = ["--labels", "dog, cat", *MODEL, "--method", "clip", "--threshold", "0.01"]


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for seed, name in enumerate(["a.png", "c.png", "sub/d.png"]):
        photo(seed).save(folder / name)
    return folder


def images(file: Path) -> list[str]:
    with file.open(newline="", encoding="utf-8") as rows:
        return list(dict.fromkeys(Path(row["image"]).name for row in csv.DictReader(rows)))


def kill(tmp_path: Path, photos: int, formats: list[str], kills: int) -> list[dict]:
    folder, out = tmp_path / "photos", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    for seed in range(photos):
        photo(seed).save(folder / f"{seed:03}.png")
    captions = tmp_path / "captions.txt"
    captions.write_text("A dog.\nA cat.\n")
    line = [sys.executable, "-m", "tests.cli.killed", folder, out, ",".join(formats), kills, 0]
    line += ["-l", "dog, cat", "--weights", VIT, "--quick-gelu", "--device", "cpu", "--method", "clip"]
    line += ["--captions", captions, "--threshold", "0.01", "-q"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(map(str, line), capture_output=True, text=True, check=True, cwd=ROOT, env=env)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    parts = [file.name for file in out.iterdir() if ".part-" in file.name or file.name.endswith(".lock")]
    assert not parts, "nothing half-written is left"
    return found


def check(found: list[dict], photos: int, formats: list[str]) -> None:
    assert [one["format"] for one in found] == formats
    for one in found:
        assert (one["code"], one["same"]) == (0, True), one
        assert one["lines"] == photos, "no image was tagged twice"


def test_killed_runs_end_as_if_nothing_had_happened(tmp_path):
    formats = ["csv", "json", "parquet"]
    check(kill(tmp_path, 24, formats, kills=1), 24, formats)


@pytest.mark.soak
def test_twenty_kills_for_each_format(tmp_path):
    formats = ["csv", "jsonl", "json", "parquet"]
    check(kill(tmp_path, 300, formats, kills=20), 300, formats)


def test_new_photos_are_added_in_their_place_and_nothing_is_tagged_twice(photos, tmp_path):
    out = tmp_path / "new" / "folder" / "tags.csv"
    first = mltta("tag", photos, *CLIP, "-o", out)
    assert "3 images tagged" in first.stderr
    assert f"written to {out}" in first.stderr
    photo(9).save(photos / "b.png")
    again = mltta("tag", photos, *CLIP, "-o", out)
    assert "1 image tagged" in again.stderr
    assert "3 were already done" in again.stderr
    assert images(out) == ["a.png", "b.png", "c.png", "d.png"]
    mltta("tag", photos, *CLIP, "-o", tmp_path / "whole.csv")
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_photo_that_was_changed_is_tagged_again_and_tags_of_others_are_kept(photos, tmp_path):
    out = tmp_path / "tags.csv"
    mltta("tag", photos, *CLIP, "-o", out)
    photo(50).save(photos / "c.png")
    assert "1 image tagged" in mltta("tag", photos, *CLIP, "-o", out).stderr
    (photos / "a.png").unlink()
    assert "0 images tagged; 2 were already done" in mltta("tag", photos, *CLIP, "-o", out).stderr
    assert images(out) == ["a.png", "c.png", "d.png"], "what was asked for before is not lost"


def test_images_that_failed_are_tried_again(photos, tmp_path):
    whole = (photos / "c.png").read_bytes()
    (photos / "c.png").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "tags.jsonl"
    failed = mltta("tag", photos, *CLIP, "-o", out, check=1)
    assert "1 of 3 could not be tagged" in failed.stderr
    assert "error" in json.loads(out.read_text().splitlines()[1])
    mltta("tag", photos, *CLIP, "-o", out, check=1)
    (photos / "c.png").write_bytes(whole)
    assert "1 image tagged" in mltta("tag", photos, *CLIP, "-o", out).stderr
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [Path(record["image"]).name for record in records] == ["a.png", "c.png", "d.png"]
    assert not any("error" in record for record in records)


def test_other_settings_are_refused_with_what_differs_and_overwrite_starts_anew(photos, tmp_path):
    out = tmp_path / "tags.csv"
    mltta("tag", photos, *CLIP, "-o", out)
    before = out.read_bytes()
    for more, said in (
        (["--labels", "dog, boat"], "labels differ (without cat; with boat)"),
        (["--method", "ml-tta"], "method was clip, is now ml-tta"),
        (["--threshold", "0.2"], "threshold was 0.01, is now 0.2"),
        (["--seed", "3"], "seed was 0, is now 3"),
    ):
        refused = mltta("tag", photos, *CLIP, *more, "-o", out, check=2).stderr
        assert said in refused
        assert "--overwrite" in refused
    assert out.read_bytes() == before
    anew = mltta("tag", photos, *CLIP, "--labels", "dog, boat", "-o", out, "--overwrite").stderr
    assert "3 images tagged" in anew
    assert "boat" in out.read_text()


def test_a_file_that_is_not_ours_or_was_changed_is_not_written_over(photos, tmp_path):
    out = tmp_path / "tags.csv"
    out.write_text("my notes of three years\n")
    refused = mltta("tag", photos, *CLIP, "-o", out, check=2).stderr
    assert "exists but has no journal, so it cannot be resumed" in refused
    assert out.read_text() == "my notes of three years\n"
    mltta("tag", photos, *CLIP, "-o", out, "--overwrite")
    out.write_text(out.read_text().replace("dog", "wolf"))
    changed = out.read_bytes()
    assert "was changed after mltta wrote it" in mltta("tag", photos, *CLIP, "-o", out, check=2).stderr
    assert out.read_bytes() == changed


def test_an_output_that_was_removed_is_written_again_without_tagging(photos, tmp_path):
    out = tmp_path / "tags.json"
    mltta("tag", photos, *CLIP, "-o", out)
    before = out.read_bytes()
    out.unlink()
    assert "0 images tagged; 3 were already done" in mltta("tag", photos, *CLIP, "-o", out).stderr
    assert out.read_bytes() == before


def test_a_second_run_into_the_same_file_is_refused_and_a_dead_ones_lock_is_taken_over(photos, tmp_path):
    out, lock = tmp_path / "tags.csv", tmp_path / ".tags.csv.mltta.lock"
    held = f"with locked(Path({str(lock)!r}), 'x'):\n  print('held', flush=True); input()"
    script = [
        sys.executable,
        "-c",
        f"from pathlib import Path; from mltta.storage.lock import locked\n{held}",
    ]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        refused = mltta("tag", photos, *CLIP, "-o", out, check=2).stderr
        assert f"is being written by process {other.pid} on" in refused
        other.kill()
    assert lock.is_file(), "a killed process leaves it"
    mltta("tag", photos, *CLIP, "-o", out)
    assert images(out) == ["a.png", "c.png", "d.png"]
    assert not lock.exists()


def test_a_lock_is_let_go_when_the_work_fails(tmp_path):
    def fail() -> None:
        with locked(tmp_path / "lock", "x"):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fail()
    assert not (tmp_path / "lock").exists()


def test_an_online_method_is_not_gone_on_with(photos, tmp_path):
    online = [*CLIP, "--method", "tda"]
    mltta("tag", photos, *online, "-o", tmp_path / "tags.csv")
    mltta("tag", photos, *online, "-o", tmp_path / "tags.csv")
    photo(9).save(photos / "b.png")
    refused = mltta("tag", photos, *online, "-o", tmp_path / "tags.csv", check=2).stderr
    assert "tda learns from earlier photos" in refused
    assert images(tmp_path / "tags.csv") == ["a.png", "c.png", "d.png"]
    assert "depend on image order" in mltta("tag", photos, *online, "--watch", check=2).stderr


def test_a_damaged_journal_costs_the_image_whose_line_it_is(photos, tmp_path):
    out, journal = tmp_path / "tags.json", tmp_path / ".tags.json.mltta"
    mltta("tag", photos, *CLIP, "-o", out)
    before = out.read_bytes()
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"score", b"scare")
    journal.write_bytes(b"".join(lines)[:-30])
    out.unlink()
    assert "1 image tagged" in mltta("tag", photos, *CLIP, "-o", out).stderr
    assert out.read_bytes() == before


def test_watching_takes_what_comes_once_it_is_whole(photos, tmp_path, monkeypatch):
    out, rounds = tmp_path / "tags.csv", []

    def wait(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            whole = tmp_path / "new.png"
            photo(9).save(whole)
            (photos / "b.png").write_bytes(whole.read_bytes()[:100])
        elif len(rounds) == 3:  # it has grown since: not taken yet
            shutil.copy(tmp_path / "new.png", photos / "b.png")
        elif len(rounds) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr("mltta.cli.tagging.sleep", wait)
    done = mltta("tag", photos, *CLIP, "-o", out, "--watch")
    assert "stopped: 4 images tagged" in done.stderr
    assert set(rounds) == {2.0}
    assert images(out) == ["a.png", "b.png", "c.png", "d.png"]


def test_ctrl_c_leaves_a_whole_file_and_the_same_command_goes_on(photos, tmp_path, monkeypatch):
    from mltta.cli.progress import Progress

    out, advance, seen = tmp_path / "tags.json", Progress.advance, []

    def interrupt(self: Progress) -> None:
        advance(self)
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance", interrupt)
    done = mltta("tag", photos, *CLIP, "-o", out, check=130)
    assert "interrupted: 2 images tagged" in done.stderr
    assert "rerun the command to continue" in done.stderr
    assert len(json.loads(out.read_text())) == 2
    assert "1 image tagged" in mltta("tag", photos, *CLIP, "-o", out).stderr
    assert len(json.loads(out.read_text())) == 3


def test_pictures_keep_the_photos_folders_and_are_no_photos_themselves(photos, tmp_path):
    (photos / "other").mkdir()
    Image.open(photos / "sub/d.png").convert("RGB").save(photos / "other/d.jpg")
    pictures = photos / "pictures"
    mltta("tag", photos, *CLIP, "-o", tmp_path / "tags.csv", "--annotate", pictures)
    found = sorted(str(file.relative_to(pictures)) for file in pictures.rglob("*.png"))
    assert found == ["a.png", "c.png", "other/d.png", "sub/d.png"]
    again = mltta("tag", photos, *CLIP, "-o", tmp_path / "tags.csv", "--annotate", pictures)
    assert "0 images tagged; 4 were already done" in again.stderr
