"""Results on disk: whatever a kill leaves of them, what is left is read rightly and gone on from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mltta.errors import MlttaError
from mltta.evaluation.results import Result, check_run, find_results
from mltta.evaluation.writing import ResultWriter
from mltta.methods.base import Emits
from mltta.session.prepare import Photo
from mltta.session.scorer import Scored
from tests.safety import world as safety

RUN = {"method": "made-up", "settings": {}, "teacher": None, "merge": "sum", "emits": "logits"}
TARGETS = np.random.default_rng(0).integers(0, 2, (6, 3)).astype(np.int8)
SCORES = np.random.default_rng(1).normal(size=(6, 2, 3)).astype(np.float32)
SHOWN = np.random.default_rng(2).random((6, 3), np.float32)
#: image 2 failed, and the records come in another order than the images
RECORDS = [
    Scored(photo, error="no such file")
    if photo.index == 2
    else Scored(photo, SCORES[photo.index], SHOWN[photo.index], np.arange(3) == photo.index % 3, ms=1.5)
    for photo in (Photo(index, f"bild {index} ü\n", None) for index in (3, 0, 2, 5, 1, 4))
]
ROW = (2 + 1) * 3 * 4


def write(folder: Path, records=RECORDS) -> Path:
    writer = ResultWriter(folder, RUN, TARGETS, branches=2)
    for start in range(0, len(records), 2):
        writer.write(records[start : start + 2])
    writer.close()
    return folder


def finish(folder: Path) -> tuple[int, Result]:
    """Open again what is left, write what is missing; how much there was, and what is there now."""
    writer = ResultWriter(folder, RUN, TARGETS, branches=2)
    there = writer.count
    writer.write([record for record in RECORDS if not writer.done[record.photo.index]])
    writer.close()
    return there, Result(folder)


def check_whole(result: Result) -> None:
    assert result.complete
    assert result.failed == {"bild 2 ü\n": "no such file"}
    assert result.scored.tolist() == [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(result.branches(), SCORES[[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(result.shown(), SHOWN[[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(result.targets(), TARGETS[[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(result.present(), np.eye(3, dtype=bool)[[0, 1, 0, 1, 2]])
    assert os.path.getsize(result.folder / "scores.f32") == 5 * ROW
    assert len((result.folder / "images.jsonl").read_bytes().splitlines()) == 6


def whole_left(lines: bytes, rows: int) -> int:
    """How many records are whole and have their scores: the naive count."""
    count = 0
    for line in lines.split(b"\n")[:-1]:
        rows -= b"error" not in line
        if rows < 0:
            break
        count += 1
    return count


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("results") / "whole")


def cut_copy(whole: Path, lines: int, scores: int) -> tuple[Path, int]:
    """The result with its two files cut at these bytes, and how many records that leaves."""
    torn = whole.parent / "torn"
    shutil.rmtree(torn, ignore_errors=True)
    shutil.copytree(whole, torn)
    os.truncate(torn / "images.jsonl", lines)
    os.truncate(torn / "scores.f32", scores)
    return torn, whole_left((torn / "images.jsonl").read_bytes(), scores // ROW)


def test_a_whole_result_reads_as_it_was_written(whole):
    check_whole(Result(whole))
    assert len(Result(whole)) == 6
    assert Result(whole).ms == 1.5


def test_records_cut_at_any_byte_are_gone_on_from(whole):
    size = (whole / "images.jsonl").stat().st_size
    seen = set()
    for cut in range(size + 1):
        torn, left = cut_copy(whole, cut, 5 * ROW)
        there, result = finish(torn)
        assert there == left
        check_whole(result)
        seen.add(left)
    assert seen == set(range(7))


def test_scores_cut_at_any_byte_take_their_records_with_them(whole):
    size = (whole / "images.jsonl").stat().st_size
    for cut in range(5 * ROW + 1):
        torn, left = cut_copy(whole, size, cut)
        assert len(Result(torn).scored) == cut // ROW, "what is read has scores"
        there, result = finish(torn)
        # the third record is of the failed image and needs no scores
        assert there == left == (cut // ROW if cut < 2 * ROW else cut // ROW + 1)
        check_whole(result)


@settings(max_examples=60, deadline=None)
@given(lines=st.floats(0, 1), scores=st.floats(0, 1))
def test_both_files_cut_anywhere_are_gone_on_from(whole, lines, scores):
    size = (whole / "images.jsonl").stat().st_size
    torn, left = cut_copy(whole, round(lines * size), round(scores * 5 * ROW))
    there, result = finish(torn)
    assert there == left
    check_whole(result)


@pytest.mark.parametrize("rubbish", [b"\0" * 40 + b"\n", b'{"index": 1}\n', b"[]\n", b"{}\n", b"\xff\n"])
def test_lines_that_are_no_records_are_measured_again_at_the_end_and_refused_elsewhere(whole, rubbish):
    torn, _ = cut_copy(whole, (whole / "images.jsonl").stat().st_size, 5 * ROW)
    lines = (torn / "images.jsonl").read_bytes().splitlines(keepends=True)
    (torn / "images.jsonl").write_bytes(b"".join([*lines[:4], rubbish, *lines[4:]]))
    with pytest.raises(MlttaError, match=r"line 5, or its row of scores\.f32, is damaged"):
        finish(torn)
    (torn / "images.jsonl").write_bytes(b"".join([*lines[:4], rubbish]))
    there, result = finish(torn)
    assert there == 4
    check_whole(result)


def test_a_folder_of_another_run_is_refused_and_left_as_it_is(whole):
    before = {file.name: file.read_bytes() for file in whole.iterdir()}
    for run, targets, branches in (
        ({**RUN, "method": "other"}, TARGETS, 2),
        (RUN, TARGETS[:5], 2),
        (RUN, TARGETS, 1),
    ):
        with pytest.raises(
            MlttaError, match="contains the result of another run; remove it or use another folder"
        ):
            ResultWriter(whole, run, targets, branches)
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == before


OTHER = """
import sys
from pathlib import Path
from mltta.errors import MlttaError
from mltta.storage.lock import locked
try:
    with locked(Path(sys.argv[1]), "it"):
        print("mine", flush=True)
        sys.stdin.read()
except MlttaError:
    print("taken", flush=True)
"""


def test_two_processes_never_write_to_one_result(tmp_path):
    """Their rows and records would interleave, and a row could be taken for another image's."""

    def other() -> tuple[subprocess.Popen, bytes]:
        command = [sys.executable, "-c", OTHER, str(tmp_path / ".lock")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        return process, process.stdout.readline()

    ours = ResultWriter(tmp_path, RUN, TARGETS, branches=2)
    process, said = other()
    process.communicate()
    assert said == b"taken\n"
    ours.close()
    process, said = other()
    assert said == b"mine\n"
    with pytest.raises(MlttaError, match="is being written by process"):
        ResultWriter(tmp_path, RUN, TARGETS, branches=2)
    process.kill()
    process.communicate()
    ResultWriter(tmp_path, RUN, TARGETS, branches=2).close()


def test_a_full_disk_is_told_in_a_sentence_and_the_next_run_goes_on(tmp_path):
    writer = ResultWriter(tmp_path / "full", RUN, TARGETS, branches=2)
    writer.write(RECORDS[:2])
    writer._scores = Path("/dev/full").open("ab")  # noqa: SIM115
    with pytest.raises(MlttaError, match=r"cannot be written: No space left on device"):
        writer.write(RECORDS[2:4])
    writer.close()
    assert not writer.done[5]
    there, result = finish(tmp_path / "full")
    assert there == 2
    check_whole(result)


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MlttaError, match="cannot be written"):
        ResultWriter(tmp_path / "file" / "result", RUN, TARGETS)


def online_writer(folder: Path) -> ResultWriter:
    """A writer with a memory from record 4, and all six records."""
    writer = ResultWriter(folder, RUN, TARGETS, branches=2)
    writer.write(RECORDS[:4])
    writer.save_state({"memory": torch.arange(4.0)})
    writer.write(RECORDS[4:])
    return writer


def test_records_after_the_kept_memory_are_dropped(tmp_path):
    online_writer(tmp_path).close()
    writer = ResultWriter(tmp_path, RUN, TARGETS, branches=2)
    assert writer.count == 6
    state = writer.load_state()
    assert state is not None
    assert state["memory"].tolist() == [0, 1, 2, 3]
    assert (writer.count, writer.resumed) == (4, 4)
    assert writer.done.nonzero()[0].tolist() == [0, 2, 3, 5]
    writer.close()
    check_whole(finish(tmp_path)[1])


@pytest.mark.parametrize("harm", ["memory cut", "memory empty", "memory gone", "records lost", "scores lost"])
def test_a_memory_that_does_not_fit_its_records_starts_from_nothing(tmp_path, harm):
    online_writer(tmp_path).close()
    state = tmp_path / "state.safetensors"
    if harm == "memory cut":
        os.truncate(state, state.stat().st_size - 5)
    elif harm == "memory empty":
        os.truncate(state, 0)
    elif harm == "memory gone":
        state.unlink()
    elif harm == "records lost":
        lines = (tmp_path / "images.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "images.jsonl").write_bytes(b"".join(lines[:3]))
    else:
        os.truncate(tmp_path / "scores.f32", 2 * ROW)
    writer = ResultWriter(tmp_path, RUN, TARGETS, branches=2)
    assert writer.load_state() is None
    assert (writer.count, writer.done.sum()) == (0, 0)
    writer.close()
    check_whole(finish(tmp_path)[1])


def test_results_are_found_by_their_folders_and_below_others_each_once(whole, tmp_path):
    for name in ("b", "deep/er/a"):
        shutil.copytree(whole, tmp_path / name)
    found = find_results([tmp_path / "b", tmp_path])
    assert [result.folder for result in found] == [tmp_path / "b", tmp_path / "deep/er/a"]


def test_what_is_no_result_is_told_in_a_sentence(whole, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MlttaError, match=r"no result in .*empty: give a folder written by `mltta eval`"):
        find_results([tmp_path / "empty"])
    with pytest.raises(MlttaError, match="no result in"):
        find_results([tmp_path / "nowhere"])
    for number, text in enumerate(("", "[1]", "{}", '{"shape": 3}', "not json")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "run.json").write_text(text)
        with pytest.raises(MlttaError, match="is not a result of `mltta eval`"):
            find_results([folder])
    shutil.copytree(whole, tmp_path / "half")
    (tmp_path / "half" / "scores.f32").unlink()
    with pytest.raises(MlttaError, match=r"is an incomplete result: scores\.f32 is missing"):
        find_results([tmp_path / "half"])


def test_ids_that_are_not_unicode_survive(tmp_path):
    odd = os.fsdecode(b"caf\xe9.jpg")
    writer = ResultWriter(tmp_path, RUN, TARGETS[:1], branches=2)
    writer.write([Scored(Photo(0, odd, None), error=f"{odd}: gone")])
    writer.close()
    assert Result(tmp_path).failed == {odd: f"{odd}: gone"}
    assert all(json.loads(line)["id"] == odd for line in (tmp_path / "images.jsonl").read_text().splitlines())


@pytest.mark.parametrize("emits", get_args(Emits))
def test_results_of_every_kind_of_method_can_be_compared(tmp_path, emits):
    (result,) = safety.run(safety.dataset(tmp_path / "photos", 2), ["clip"], tmp_path / "out").results
    check_run({**result.run, "emits": emits}, result.folder)
    with pytest.raises(MlttaError, match="invalid values"):
        check_run({**result.run, "emits": "guesses"}, result.folder)
