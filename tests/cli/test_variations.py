"""`mltta variations` and `mltta eval --variations`, with a stand-in for the diffusion model."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from mltta.evaluation.results import find_results
from mltta.methods import variations
from tests.cli.test_cli import MODEL, mltta
from tests.cli.test_evaluate import make_folder
from tests.methods.test_variations import FakePipeline, files

NAME = "folder-photos"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, tmp_path):
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(variations, "load_pipeline", lambda device: FakePipeline())


@pytest.fixture
def photos(tmp_path) -> Path:
    return make_folder(tmp_path / "photos")


def evaluate(photos: Path, *args, check: int = 0):
    small = ["--set", "difftpt.views=4", "--set", "difftpt.generated_views=3", "--set", "difftpt.steps=1"]
    given = ["eval", "folder", "--data", photos, *MODEL, "--workers", 0, "--draws", 20, *small]
    return mltta(*given, "--out", photos.parent / "results", *args, check=check)


def test_photos_and_datasets_get_variations_that_difftpt_reads(photos, tmp_path):
    made = tmp_path / "made"
    mltta("variations", photos, "-o", made, "-n", 2)
    assert len(files(made)) == 3 * 2 + 1
    done = mltta("variations", "--data", f"folder={photos}", "-o", made, "-n", 3)
    assert "9 variations generated" in done.stderr
    assert sorted(one.name for one in (made / NAME).iterdir()) == [
        "0.png",
        "1.png",
        "2.png",
        "variations.json",
    ]
    scores = evaluate(photos, "--method", "clip", "--method", "difftpt", "--variations", made)
    assert "difftpt" in scores.stdout
    moved = shutil.move(made / NAME, tmp_path / "moved")  # what is in the folder counts, not where it lies
    again = evaluate(photos, "--method", "difftpt", "--variations", moved)
    assert "difftpt (views=4, generated_views=3, steps=1): 3 images were already done" in again.stderr
    runs = {result.run["method"]: result.run for result in find_results([tmp_path / "results"])}
    assert runs["difftpt"]["settings"] == {"views": 4, "generated_views": 3, "steps": 1}
    assert (runs["clip"]["generated"], len(runs["difftpt"]["generated"])) == (None, 16)


def test_a_killed_run_resumes_and_shards_add_up_to_the_same_files(photos, tmp_path, monkeypatch):
    mltta("variations", photos, "-o", tmp_path / "whole", "-n", 3)
    for k in (0, 1):
        mltta("variations", photos, "-o", tmp_path / "shards", "-n", 3, "--shard", f"{k}/2")
    assert files(tmp_path / "shards") == files(tmp_path / "whole")

    class Killed(FakePipeline):
        def __call__(self, *args, **more):
            if len(self.calls) == 2:
                raise KeyboardInterrupt
            return super().__call__(*args, **more)

    killed = Killed()
    again = ["variations", photos, "-o", tmp_path / "killed", "-n", 3, "--batch-size", 2]
    with monkeypatch.context() as patch:
        patch.setattr(variations, "load_pipeline", lambda device: killed)
        mltta(*again, check=130)
    assert len(files(tmp_path / "killed")) == 3 + 1
    assert "6 variations generated" in mltta(*again).stderr
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert "holds variations made with" in mltta(*again, "--seed", 1, check=2).stderr


def test_what_is_missing_is_said(photos, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "diffusers", None)
    done = mltta("variations", photos, "-o", tmp_path / "made", check=2)
    assert "pip install mltta[diffusion]" in done.stderr
    assert "give photos or folders" in mltta("variations", check=2).stderr
    assert "give K/N" in mltta("variations", photos, "--shard", "2/2", check=2).stderr
    assert "`mltta variations`" in evaluate(photos, "--method", "difftpt", check=2).stderr
    assert (
        "no method uses generated images: clip"
        in evaluate(photos, "--method", "clip", "--variations", tmp_path, check=2).stderr
    )


def test_unreadable_photos_are_listed(photos, tmp_path, monkeypatch):
    (photos / "1.png").write_text("not an image")
    done = mltta("variations", photos, "-o", tmp_path / "made", "-n", 2, check=1)
    assert "photos without variations: 1" in done.stderr
    assert f"{tmp_path / 'made'}: 1" in done.stderr


def test_photos_of_the_same_name_are_refused_before_anything_is_generated(photos, tmp_path):
    shutil.copytree(photos, photos / "more")
    done = mltta("variations", photos, "-o", tmp_path / "made", "-n", 2, check=2)
    assert "several photos are named '0'" in done.stderr
    assert not (tmp_path / "made").exists()
