"""Files are written whole or not at all; kills, full disks and closed screens cost sentences, not work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mltta.captions.store import FILES, CaptionBase
from mltta.storage import atomic
from tests.safety.many import ROOT, outcomes
from tests.safety.world import TEXTS, VIT, photo

TINY = ("--weights", VIT, "--quick-gelu")


def test_a_write_that_fails_leaves_the_old_and_no_rubbish(tmp_path):
    file = tmp_path / "kept"
    atomic.write(file, b"old")

    def fail() -> None:
        with atomic.replacing(file) as part:
            part.write_bytes(b"half of the n")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        fail()
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
    atomic.write(file, b"new")
    assert file.read_bytes() == b"new"


def test_what_a_killed_writer_left_is_cleaned_and_what_a_living_one_writes_is_not(tmp_path):
    file = tmp_path / "kept"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = tmp_path / f".kept.part-{atomic._MACHINE}-{ended.pid}-0"
    living = tmp_path / f".kept.part-{atomic._MACHINE}-{os.getppid()}-0"
    elsewhere = tmp_path / ".kept.part-00000000-1-0"
    for part in (stale, living, elsewhere):
        part.write_bytes(b"half")
    atomic.write(file, b"new")
    assert sorted(tmp_path.iterdir()) == sorted([file, living, elsewhere])


def test_a_link_is_written_through_and_a_device_is_not_renamed_over(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    atomic.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    with atomic.replacing(tmp_path / "pipe", durable=False) as part:
        part.write_bytes(b"through")
    assert reader.communicate()[0] == b"through"


def build(source: Path, out: Path, kill_after: int | None = None) -> int:
    """Build a base slowly, and kill it when so many pieces of its files are on disk."""
    command = [sys.executable, "-m", "tests.safety.slow_build", str(source), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout, start=1):
            if kill_after is not None and line.startswith(b"saving") and number > kill_after:
                process.kill()
    return process.returncode


def killed_builds(tmp_path: Path, moments: list[int]) -> None:
    source = tmp_path / "captions.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    assert build(source, tmp_path / "whole") == 0
    want = {name: (tmp_path / "whole" / name).read_bytes() for name in FILES}
    out = tmp_path / "base"
    for moment in moments:
        assert build(source, out, kill_after=moment) == -signal.SIGKILL
    assert build(source, out) == 0
    assert {name: (out / name).read_bytes() for name in FILES} == want
    assert sorted(file.name for file in out.iterdir()) == sorted(FILES), "nothing half-written is left"
    assert CaptionBase.load(out).texts == list(TEXTS)


def test_a_caption_build_killed_while_saving_is_taken_up_by_the_same_command(tmp_path):
    killed_builds(tmp_path, [1, 6])


@pytest.mark.soak
def test_ten_kills_of_a_caption_build(tmp_path):
    killed_builds(tmp_path, list(range(10)))


def test_files_of_the_users_own_are_still_not_written_over(tmp_path):
    (tmp_path / "texts.txt").write_text("mine")
    build = ["captions", "build", ROOT / "examples/labels.txt", "--out", tmp_path, *TINY]
    (done,) = outcomes([build])
    assert done.code == 2
    assert "already contains texts.txt" in done.said
    assert (tmp_path / "texts.txt").read_text() == "mine"


def commands(tmp_path: Path) -> dict[str, list[object]]:
    """Commands that write, each into a folder of its own."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for seed in range(40):
        photo(seed).save(photos / f"{seed}.png")
    rows = "\n".join(f"{seed}.png,{'dog' if seed % 2 else 'cat'}" for seed in range(40))
    (photos / "labels.csv").write_text(f"image,labels\n{rows}\n")
    source = tmp_path / "captions.txt"
    source.write_text("\n".join(f"A dog and {i} cats." for i in range(300)))
    base: list[object] = [*TINY, "--captions", source]
    return {
        "build": ["captions", "build", source, "--out", tmp_path / "out", *TINY],
        "eval": ["eval", "folder", "--data", photos, "--method", "clip", *base, "--out", tmp_path / "out"],
        "generate": [
            *["captions", "generate", "--labels", "voc", "--engine", "composer", "--count", "200"],
            *["--out", tmp_path / "out" / "c.jsonl"],
        ],
        "tag": [
            "tag",
            photos,
            "-l",
            "dog, cat",
            "--method",
            "clip",
            *base,
            "-f",
            "jsonl",
            "-o",
            tmp_path / "tags",
        ],
    }


def test_a_full_disk_is_told_in_a_sentence(tmp_path):
    given = commands(tmp_path)
    found = outcomes(list(given.values()), "full", MLTTA_CACHE=str(tmp_path / "cache"))
    for which, (code, said) in zip(given, found, strict=True):
        assert "Traceback" not in said, said
        assert (code, "File too large" in said) == (2, True), (which, said)


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("a file where a folder should be")
    given = commands(tmp_path)
    moved = [
        [str(part).replace(str(tmp_path / "out"), str(tmp_path / "file/out")) for part in own]
        for own in given.values()
    ]
    moved = [
        [part.replace(str(tmp_path / "tags"), str(tmp_path / "file/tags")) for part in own] for own in moved
    ]
    for which, (code, said) in zip(given, outcomes(moved), strict=True):
        assert "Traceback" not in said, said
        assert (code, "file" in said) == (2, True), (which, said)


def test_a_closed_screen_is_no_error(tmp_path):
    photo(0).save(tmp_path / "a.png")
    (tmp_path / "c.txt").write_text("A dog.\nA cat.\n")
    line = [
        "tag",
        tmp_path / "a.png",
        "-l",
        "dog, cat",
        "--method",
        "clip",
        *TINY,
        "--captions",
        tmp_path / "c.txt",
    ]
    found = outcomes([[*line, "-f", format] for format in ("table", "jsonl", "csv", "json")], "closed")
    assert [code for code, _ in found] == [0, 0, 0, 0], found


def test_a_full_or_broken_output_ends_quietly():
    line = [sys.executable, "-m", "mltta", "models", "--all"]
    for target, said in (("> /dev/full", "No space left"), ("| true", "")):
        shell = ["bash", "-c", f'"$@" {target}', "sh", *line]
        done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        assert said in done.stderr
