"""A library computes only what is missing, survives kills and full disks, and never mixes models."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mltta.errors import MlttaError
from mltta.library import Library
from tests.cli.test_cli import mltta
from tests.safety.world import photo

ROOT = Path(__file__).parents[2]
LABELS = ["--labels", "dog, cat, sofa"]


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for seed, name in enumerate(["a.png", "b.png", "c.png", "sub/d.png"]):
        photo(seed, (64, 48)).save(folder / name)
    return folder


@pytest.fixture
def library(photos, tmp_path):
    folder = tmp_path / "photos.mltta"
    mltta("tag", photos, "--library", folder, *LABELS)
    return folder


def content(folder: Path) -> dict[str, object]:
    """Everything in a library except when it was written, and which process wrote which feature."""
    with Library(folder) as held:
        tables = {
            name: held.rows(f"SELECT * FROM {name} ORDER BY 1, 2")
            for name in ("photos", "files", "scores", "answers")
        }
        vectors = np.array(held.vectors()).tobytes()
    names = sorted(b"".join(file.read_bytes() for file in folder.rglob("*.images")))
    return {**tables, "vectors": vectors, "features": len(names)}


def features_of(folder: Path) -> int:
    """How many rows of features there are, for all specs together."""
    return sum(file.stat().st_size for file in folder.rglob("*.images")) // 16


def test_only_what_is_missing_is_computed(photos, library):
    assert features_of(library) == 12, "three looks at four photos"
    again = mltta("tag", photos, "--library", library, *LABELS)
    assert "0 images tagged; 4 were already done" in again.stderr
    photo(9, (64, 48)).save(photos / "e.png")
    assert "1 image tagged" in mltta("tag", photos, "--library", library, *LABELS).stderr
    assert features_of(library) == 15


def test_moved_and_copied_photos_are_recognized(photos, library):
    (photos / "a.png").rename(photos / "sub" / "moved.png")
    (photos / "copy.png").write_bytes((photos / "b.png").read_bytes())
    mltta("tag", photos, "--library", library, *LABELS)
    assert features_of(library) == 12, "nothing was encoded again"
    with Library(library) as held:
        names = {file.path.name: file.photo for file in held.files()}
    assert names.keys() == {"b.png", "c.png", "copy.png", "d.png", "moved.png"}
    assert names["moved.png"] == 1
    assert names["copy.png"] == names["b.png"]


def test_a_changed_photo_is_encoded_again(photos, library):
    photo(50, (64, 48)).save(photos / "c.png")
    assert "1 image tagged" in mltta("tag", photos, "--library", library, *LABELS).stderr
    assert features_of(library) == 15


def test_unreadable_photos_are_listed_and_tried_again(photos, library, tmp_path):
    whole = (photos / "c.png").read_bytes()
    (photos / "c.png").write_bytes(whole[: len(whole) // 2])
    failed = mltta("tag", photos, "--library", library, *LABELS, check=1)
    assert "1 of 4 could not be tagged" in failed.stderr
    mltta("export", library, "-o", tmp_path / "tags.csv", check=1)
    assert "damaged or incomplete" in (tmp_path / "tags.csv").read_text()
    (photos / "c.png").write_bytes(whole)
    mltta("tag", photos, "--library", library, *LABELS)
    with Library(library) as held:
        assert not any(file.error for file in held.files())


def test_scores_of_a_library_are_those_of_fresh_tagging_within_0_02(photos, library, tmp_path):
    with Library(library) as held:
        number, about = held.last_list()
        stored = np.array(list(held.scores(number, about["labels"], held.files())))
    from mltta import Tagger

    tagger = Tagger(labels=["dog", "cat", "sofa"])
    fresh = [{one["label"]: one["score"] for one in tags} for tags in tagger(str(photos))]
    wanted = np.array([[one[name] for name in about["labels"]] for one in fresh])
    assert np.abs(stored - wanted).max() <= 0.02


def test_rescoring_from_features_gives_the_same_bits(photos, library, tmp_path):
    mltta("export", library, "--labels", "dog, cat", "-o", tmp_path / "other.csv")
    mltta("tag", photos, "--library", tmp_path / "new.mltta", "--labels", "dog, cat", "-q")
    mltta("export", tmp_path / "new.mltta", "-o", tmp_path / "new.csv")
    assert (tmp_path / "other.csv").read_bytes() == (tmp_path / "new.csv").read_bytes()


def test_another_method_is_refused_and_named(photos, library):
    failed = mltta("tag", photos, "--library", library, *LABELS, "--method", "clip", check=2)
    assert "other views (method or its settings)" in failed.stderr
    online = mltta("tag", photos, "--library", library, *LABELS, "--method", "tda", check=2)
    assert "cannot be used with a library" in online.stderr


def test_only_one_process_writes_and_others_can_read(photos, library):
    with Library(library, write=True):
        code = "from mltta.cli import main; main()"
        line = [sys.executable, "-c", code, "tag", photos, "--library", library, *LABELS]
        done = subprocess.run(list(map(str, line)), capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 2
        assert "is being written by process" in done.stderr
        with Library(library) as reader:
            assert len(reader.files()) == 4


def test_other_folders_are_neither_taken_for_libraries_nor_written_to(photos, tmp_path):
    assert "neither a library" in mltta("export", photos, "-o", tmp_path / "x.csv", check=2).stderr
    failed = mltta("tag", photos, "--library", photos, *LABELS, check=2)
    assert "exists and is not a library" in failed.stderr
    assert "is not a library" in mltta("search", tmp_path / "none", "dog", check=2).stderr


def test_a_disk_that_is_full_keeps_what_was_stored(photos, library, monkeypatch):
    before = content(library)
    photo(9, (64, 48)).save(photos / "e.png")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mltta.session.cache.os.fsync", full)
    failed = mltta("tag", photos, "--library", library, *LABELS, check=2)
    assert "No space left on device" in failed.stderr
    monkeypatch.undo()
    monkeypatch.setattr("mltta.library.intake.put", full)
    failed = mltta("tag", photos, "--library", library, *LABELS, check=2)
    assert "No space left on device" in failed.stderr
    assert "already contains is safe" in failed.stderr
    monkeypatch.undo()
    assert {**content(library), "features": 0} == {**before, "features": 0}
    assert "1 image tagged" in mltta("tag", photos, "--library", library, *LABELS).stderr


def test_a_read_only_library_is_not_written(photos, library):
    with Library(library) as held:
        held.db.execute("PRAGMA query_only = 1")
        with pytest.raises(MlttaError, match="readonly database"), held.changes():
            held.db.execute("INSERT INTO answers VALUES ('dog', 1, 1)")
        assert held.answers() == {}


def test_a_damaged_index_is_reported(library):
    (library / "index.sqlite").write_bytes(b"nonsense" * 1000)
    assert "file is not a database. It is damaged" in mltta("search", library, "dog", check=2).stderr


def test_transactions_are_all_or_nothing(library):
    with Library(library, write=True) as held:
        with pytest.raises(MlttaError, match="cannot be used"), held.changes():
            held.db.execute("INSERT INTO answers SELECT 'dog', 1, 1 UNION ALL SELECT 'dog', 2, NULL")
        assert held.answers() == {}


def killed_after(seconds: float, line: list[object]) -> bool:
    """Whether a run was killed, or had ended before."""
    code = [sys.executable, "-c", "from mltta.cli import main; main()", *map(str, line)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        code, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, env=env
    ) as run:
        try:
            run.wait(seconds)
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
    return run.returncode == -signal.SIGKILL


def kill(tmp_path: Path, photos: int, kills: int) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for seed in range(photos):
        photo(seed, (64, 48)).save(folder / f"{seed:03}.png")
    line = ["tag", folder, *LABELS, "--library"]
    start = time.monotonic()
    mltta(*line, tmp_path / "whole.mltta")
    whole, dice, done = time.monotonic() - start + 3, random.Random(0), 0
    target = tmp_path / "killed.mltta"
    for _ in range(10 * kills):
        done += killed_after(dice.uniform(0.5, whole), [*line, target])
        if done >= kills:
            break
    assert done >= min(kills, 3)
    mltta(*line, target)
    wanted, found = content(tmp_path / "whole.mltta"), content(target)
    assert {**found, "features": 0} == {**wanted, "features": 0}
    for name in ("whole", "killed"):
        mltta("export", tmp_path / f"{name}.mltta", "-o", tmp_path / f"{name}.csv", "--threshold", "0")
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "killed.csv").read_bytes()


@pytest.mark.soak
def test_twenty_kills_change_nothing(tmp_path):
    kill(tmp_path, 60, 20)


def test_an_index_whose_last_transaction_was_cut_off_is_rolled_back(library):
    before = content(library)
    code = (
        f"import os, sqlite3; db = sqlite3.connect({str(library / 'index.sqlite')!r}, isolation_level=None); "
        "db.execute('PRAGMA cache_spill = 1'); db.execute('PRAGMA cache_size = 1'); db.execute('BEGIN'); "
        "db.execute('DELETE FROM scores'); db.execute('UPDATE files SET size = 0'); "
        "db.executemany('INSERT INTO answers VALUES (?, 1, 1)', [(str(i) * 200,) for i in range(5000)]); "
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code])
    assert done.returncode == -signal.SIGKILL
    assert content(library) == before
    assert isinstance(sqlite3.sqlite_version, str)
