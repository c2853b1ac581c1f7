"""Images that cannot be read: named with a reason, and nobody else's business."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mltta.data import Dataset
from mltta.errors import ConfigError, MlttaError
from mltta.evaluation.comparison import comparison, lines
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.summary import Summary
from mltta.methods.clip import Clip
from mltta.model.encoded import Encoded
from tests.evaluation.scene import EPISODIC, bits, make_dataset, run

BAD = {
    "cut.png": "damaged or incomplete image",
    "missing.png": "no such file; check the spelling of the path",
    "text.jpg": "not a readable JPEG, PNG, GIF, WebP, BMP, TIFF, AVIF or HEIC image",
    "empty.png": "the file is empty",
    "folder.png": "a folder, not an image",
}


@pytest.fixture
def good(tmp_path) -> Dataset:
    return make_dataset(tmp_path / "photos", 5)


@pytest.fixture
def mixed(good, tmp_path) -> Dataset:
    """A bad image before every good one."""
    folder = tmp_path / "photos"
    (folder / "cut.png").write_bytes(Path(good.images[0]).read_bytes()[:200])
    (folder / "text.jpg").write_text("this is not a picture")
    (folder / "empty.png").touch()
    (folder / "folder.png").mkdir()
    names = [name for pair in zip(BAD, good.ids, strict=True) for name in pair]
    targets = np.repeat(good.targets, 2, axis=0)
    return replace(good, ids=tuple(names), images=[folder / name for name in names], targets=targets)


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_named_with_reasons_and_the_others_are_scored_as_ever(good, mixed, tmp_path, workers):
    done = run(mixed, EPISODIC, tmp_path / "mixed", batch_size=3, workers=workers)
    want = run(good, EPISODIC, tmp_path / "good").results
    assert done.counts.failed == 5
    for result, plain in zip(done.results, want, strict=True):
        assert result.complete
        assert list(result.failed) == list(BAD)
        for id, reason in BAD.items():
            assert str(tmp_path / "photos" / id) in result.failed[id]
            assert reason in result.failed[id]
        assert result.scored.tolist() == [1, 3, 5, 7, 9]
        assert bits(result) == bits(plain)
        np.testing.assert_array_equal(result.targets(), good.targets)
        assert Summary(result, draws=10).map == Summary(plain, draws=10).map
        assert Summary(result, draws=10).as_dict()["failed"] == result.failed


def test_an_online_method_learns_from_the_good_images_alone(good, mixed, tmp_path):
    with_bad = run(mixed, ["tda", Recipe("dmn", {"views": 4})], tmp_path / "mixed").results
    without = run(good, ["tda", Recipe("dmn", {"views": 4})], tmp_path / "good").results
    assert [bits(result) for result in with_bad] == [bits(result) for result in without]


def test_a_file_name_that_no_disk_has_is_a_bad_image_too(good, tmp_path):
    odd = replace(good, images=["with a \0 inside", *good.images[1:]])
    (result,) = run(odd, ["clip"], tmp_path).results
    assert "not a valid path" in result.failed["photo0.png"]
    assert len(result.scored) == 4


def test_when_no_image_can_be_read_the_summary_says_so_and_why(good, tmp_path):
    gone = replace(good, images=[tmp_path / "gone.png"] * 5)
    (result,) = run(gone, ["clip"], tmp_path).results
    assert result.complete
    with pytest.raises(
        MlttaError, match=r"has no scores: no image could be read: photo0\.png: .*no such file"
    ):
        Summary(result)


def test_no_method_and_no_images_are_told_before_any_work(good, tmp_path):
    with pytest.raises(ConfigError, match="no method given"):
        run(good, [], tmp_path)
    with pytest.raises(ConfigError, match="toy has no images"):
        run(good.select([]), ["clip"], tmp_path)
    with pytest.raises(ConfigError, match="unknown option 'wings'"):
        run(good, ["clip", Recipe("tpt", {"wings": 2})], tmp_path)
    with pytest.raises(ConfigError, match="rlcf needs a teacher"):
        run(good, ["clip", "rlcf"], tmp_path, teacher=None)
    assert not (tmp_path / "toy").exists()


def test_an_image_that_was_mended_is_tried_again(mixed, tmp_path):
    (broken,) = run(mixed, ["clip"], tmp_path).results
    assert "missing.png" in broken.failed
    for name in ("missing.png", "text.jpg"):
        (tmp_path / "photos" / name).write_bytes(Path(mixed.images[1]).read_bytes())
    again = run(mixed, ["clip", Recipe("tpt", {"views": 4})], tmp_path)
    for result in again.results:
        assert list(result.failed) == ["cut.png", "empty.png", "folder.png"]
        assert len(result.scored) == 7
    assert comparison(lines(again.results, draws=10)).rows[0].cells[0].ours is not None


def test_views_that_one_method_lacks_fail_no_other_method(good, tmp_path):
    made = tmp_path / "generated"
    for image in good.images[1:]:
        (made / Path(image).name).mkdir(parents=True)
        for i in range(2):
            (made / Path(image).name / f"{i}.png").write_bytes(Path(image).read_bytes())
    options = {"generated": str(made), "generated_views": 2, "views": 4, "steps": 1}
    clip, difftpt = run(good, ["clip", Recipe("difftpt", options)], tmp_path).results
    assert not clip.failed
    assert list(difftpt.failed) == [good.ids[0]]
    assert len(difftpt.scored) == 4


def test_other_files_under_the_same_names_are_another_run(good, tmp_path):
    run(good, ["clip"], tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for image, next_one in zip(good.images, [*good.images[1:], good.images[0]], strict=True):
        (other / Path(image).name).write_bytes(Path(next_one).read_bytes())
    moved = replace(good, images=[other / Path(image).name for image in good.images])
    done = run(moved, ["clip"], tmp_path)
    assert done.resumed == {"clip": 0}


def test_scores_that_are_not_numbers_are_a_failed_image_and_not_a_table_of_nothing(
    good, tmp_path, monkeypatch
):
    plain = Clip.branches

    def spoilt(self: Clip, encoded: Encoded) -> dict:
        found = plain(self, encoded)
        return {
            name: scores.masked_fill(scores > scores.median(), torch.nan) for name, scores in found.items()
        }

    monkeypatch.setattr(Clip, "branches", spoilt)
    (result,) = run(good, ["clip"], tmp_path).results
    assert result.failed == {id: f"{id}: its scores are not finite numbers" for id in good.ids}
