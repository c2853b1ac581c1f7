"""Images that cannot be read: named with a reason, and nobody else's business."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mltta.data import Dataset
from mltta.errors import ConfigError, MlttaError
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.summary import Summary
from tests.evaluation.scene import EPISODIC, bits, make_dataset, run

BAD = {
    "cut.png": "damaged or incomplete image",
    "missing.png": "no such file; check the spelling of the path",
    "text.jpg": "not a readable JPEG, PNG, GIF, WebP, BMP or TIFF image",
    "empty.png": "the file is empty",
    "folder.png": "this is a folder, not an image",
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
    assert "this is not a valid path" in result.failed["photo0.png"]
    assert len(result.scored) == 4


def test_when_no_image_can_be_read_the_summary_says_so_and_why(good, tmp_path):
    gone = replace(good, images=[tmp_path / "gone.png"] * 5)
    (result,) = run(gone, ["clip"], tmp_path).results
    assert result.complete
    with pytest.raises(MlttaError, match=r"has no scores: no image was read: photo0\.png: .*no such file"):
        Summary(result)


def test_no_method_and_no_images_are_told_before_any_work(good, tmp_path):
    with pytest.raises(ConfigError, match="give at least one method"):
        run(good, [], tmp_path)
    with pytest.raises(ConfigError, match="toy has no images"):
        run(good.select([]), ["clip"], tmp_path)
    with pytest.raises(ConfigError, match="no option 'wings'"):
        run(good, ["clip", Recipe("tpt", {"wings": 2})], tmp_path)
    with pytest.raises(ConfigError, match="rlcf needs a teacher"):
        run(good, ["clip", "rlcf"], tmp_path, teacher=None)
    assert not (tmp_path / "toy").exists()
