"""Lines with checksums, the format of both journals: version 0.2.0's are read, and damage is told from a kill."""

from __future__ import annotations

import io

import numpy as np

from mltta.evaluation.rows import Outcomes, line_of, row_of
from mltta.session.prepare import Photo
from mltta.session.scorer import Scored
from mltta.storage.journal import read_lines, sealed_line

ROW = b"\x00\x00\x00?\x00\x00\x80>\x00\x00\x00?\x00\x00\x80>"
#: as version 0.2.0 wrote them: a tag, and an outcome with its row of scores, whose id was written as it is
TAG = (
    b'{"stamp": [3, 4], "image": "Br\\u00fccke.jpg", "present": ["dog"], "labels": [], "crc32": "44bbe2e1"}\n'
)
OUTCOME = b'{"index": 0, "id": "Br\xc3\xbccke \\udce4.jpg", "present": [0], "ms": 1.5, "crc32": "2a7f3e83"}\n'
FAILED = b'{"index": 1, "id": "b", "error": "x", "crc32": "69d0027d"}\n'


def held(content: bytes, **options) -> list:
    return [line.held for line in read_lines(io.BytesIO(content), **options)]


def test_lines_are_written_as_version_0_2_0_wrote_them():
    tag = {"stamp": [3, 4], "image": "Brücke.jpg", "present": ["dog"], "labels": []}
    assert sealed_line(tag) == TAG
    assert held(TAG) == [tag]
    assert line_of(Scored(Photo(1, "b", None), error="x")) == FAILED


def test_a_result_of_version_0_2_0_is_read_and_continued(tmp_path):
    scores = np.array([[0.5, 0.25]], np.float32)
    outcome = Scored(Photo(0, "Brücke \udce4.jpg", None), scores, scores[0], np.array([True, False]), 1.5)
    assert row_of(outcome) == ROW
    (tmp_path / "images.jsonl").write_bytes(OUTCOME + FAILED + line_of(outcome, ROW))
    (tmp_path / "scores.f32").write_bytes(ROW + ROW)
    with (tmp_path / "images.jsonl").open("rb") as lines, (tmp_path / "scores.f32").open("rb") as rows:
        found = Outcomes.read(lines, rows, (1, 2), 2)
    assert (found.count, found.rows, found.damaged) == (3, 2, False)
    assert found.failed == {1: ("b", "x")}


def test_damage_in_the_middle_is_told_from_an_end_that_was_cut_off():
    lines = list(read_lines(io.BytesIO(TAG + TAG.replace(b"dog", b"cat") + TAG + TAG[:-9])))
    assert [(line.held is not None, line.cut_off) for line in lines] == [
        (True, False),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert sum(line.size for line in lines) == 4 * len(TAG) - 9


def test_a_line_without_what_its_checksum_covers_is_cut_off_and_with_something_else_damaged():
    assert held(OUTCOME, beside=lambda _: ROW) == [
        {"index": 0, "id": "Brücke \udce4.jpg", "present": [0], "ms": 1.5}
    ]
    assert held(OUTCOME, beside=lambda _: ROW[::-1]) == [None]
    assert [line.cut_off for line in read_lines(io.BytesIO(OUTCOME), beside=lambda _: None)] == [True]


def test_what_is_not_an_object_in_json_is_damage():
    for content in (b"\n", b"3\n", b"[]\n", b"\xff\n", b'{"a": 1}\n', b"[" * 100_000 + b"\n"):
        assert held(content) == [None]
