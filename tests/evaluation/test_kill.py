"""kill -9 in the middle of a run: the same command goes on, and nothing of it shows in the numbers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mltta.cli.eval import tell
from mltta.data.dataset import Lazy
from mltta.evaluation import evaluate as evaluator
from mltta.evaluation.results import Result, find_results
from mltta.evaluation.summary import Summary
from mltta.session.cache import list_stores
from tests.evaluation.scene import bits, make_dataset, run
from tests.evaluation.slow_run import BATCH, IMAGES, IMAGES_PER_STATE, RECIPES


def run_until_killed(out: Path, which: str, after: int) -> None:
    """Run in a process of its own, and kill it once it has done so many images and is at the next."""
    command = [sys.executable, "-m", "tests.evaluation.slow_run", str(out), which]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                process.kill()
                break
    assert process.returncode == -9, "it ended before it was killed"


def figures(result: Result) -> dict:
    found = Summary(result, draws=20).as_dict()
    del found["ms_beyond_encoding"]
    return found


@pytest.mark.parametrize("which", RECIPES)
def test_a_killed_run_started_again_ends_as_if_nothing_had_happened(tmp_path, which, monkeypatch):
    monkeypatch.setattr(evaluator, "IMAGES_PER_STATE", IMAGES_PER_STATE)
    photos = make_dataset(tmp_path / "photos", IMAGES)
    whole = run(photos, RECIPES[which], tmp_path / "whole").results

    run_until_killed(tmp_path, which, after=10)
    (store,) = list_stores(tmp_path / "features")
    encoded = store.images
    written = {result.run["method"]: len(result.scored) for result in find_results([tmp_path / "toy"])}
    assert 10 <= min(written.values()) <= max(written.values()) <= encoded < IMAGES
    assert encoded - min(written.values()) <= BATCH, "no more than a batch is lost"

    later = replace(
        photos, images=Lazy(photos.images.__getitem__, range(IMAGES))
    )  # given one by one, as before
    again = run(later, RECIPES[which], tmp_path)
    assert again.counts.encoded == IMAGES - encoded, "what was encoded is not encoded again"
    assert [bits(result) for result in again.results] == [bits(result) for result in whole]
    assert [figures(result) for result in again.results] == [figures(result) for result in whole]
    for recipe in RECIPES[which]:
        before = written[recipe.method]
        if which == "online":  # it goes on from the memory that it kept last
            before -= before % IMAGES_PER_STATE
        assert again.resumed[recipe.key] == before
        assert f"  {recipe.key}: {before} images were already done" in tell(again)
