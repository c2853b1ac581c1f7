"""A finished run is read back: its records once, its bootstrap samples from where they were saved."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mltta.evaluation import summary as figures
from mltta.evaluation.comparison import comparison, lines
from mltta.evaluation.results import Result
from mltta.evaluation.rows import Outcomes
from mltta.evaluation.summary import BOOTSTRAP, Summary
from tests.evaluation.scene import EPISODIC, make_dataset, run


def report(done, draws: int = 50):
    """What `mltta eval` does once all images are measured."""
    found = lines(done.results, draws=draws)
    for line in found:
        for summary in line.summaries:
            summary.save()
    return comparison(found)


@pytest.fixture
def finished(tmp_path):
    photos = make_dataset(tmp_path / "photos", 6)
    return photos, tmp_path / "results", report(run(photos, EPISODIC[:2], tmp_path / "results"))


def count(monkeypatch, owner, name: str) -> list:
    """The calls of a function from now on."""
    plain, calls = getattr(owner, name), []
    monkeypatch.setattr(owner, name, lambda *a, **k: calls.append(a) or plain(*a, **k))
    return calls


def test_a_finished_run_reads_its_records_once_and_draws_no_bootstrap_again(finished, monkeypatch):
    photos, out, table = finished
    reads, draws = count(monkeypatch, Outcomes, "read"), count(monkeypatch, figures, "bootstrap_map")
    written = count(monkeypatch, figures.atomic, "write")
    assert report(run(photos, EPISODIC[:2], out)) == table
    assert (len(reads), len(draws), len(written)) == (2, 0, 0)


def test_samples_are_drawn_once_for_each_result_and_score(tmp_path, monkeypatch):
    done = run(make_dataset(tmp_path / "photos", 6), EPISODIC[:3], tmp_path / "results")
    draws = count(monkeypatch, figures, "bootstrap_map")
    report(done)
    assert len(draws) == 3 * len(figures.INTERVALS)


@pytest.mark.parametrize("change", ["other draws", "damaged", "gone", "records changed"])
def test_samples_of_anything_else_are_drawn_again(finished, monkeypatch, change):
    photos, out, _ = finished
    done = run(photos, EPISODIC[:2], out)
    kept = done.results[0].folder / BOOTSTRAP
    if change == "damaged":
        kept.write_bytes(kept.read_bytes().replace(b"0", b"1", 1))
    elif change == "gone":
        kept.unlink()
    elif change == "records changed":
        file = done.results[0].folder / "images.jsonl"
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
        (done.results[0].folder / "summary.json").unlink()
    draws = count(monkeypatch, figures, "bootstrap_map")
    Summary(Result(done.results[0].folder), 20 if change == "other draws" else 50).save()
    assert len(draws) == 2
    said = json.loads((done.results[0].folder / "summary.json").read_text())
    assert said["images"] == 6 - (change == "records changed")


COMPARE = """
import sys
from mltta.cli import app
app(["compare", sys.argv[1], "--draws", "20", "--html", sys.argv[2]], standalone_mode=False)
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""


def test_results_are_compared_without_torch(finished, tmp_path):
    """Importing it takes longer than everything that reading results does."""
    command = [sys.executable, "-c", COMPARE, str(finished[1]), str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "F1 of sets" in done.stdout
