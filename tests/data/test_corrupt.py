"""Corruptions: what each does to a picture, that severities are in order, and that chance belongs to the image."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta.data import Dataset
from mltta.data.corrupt import CORRUPTIONS, FOG, MOTION, NOISE, QUALITY, corrupt, corrupt_image
from mltta.errors import ConfigError, ImageError
from mltta.evaluation.measure import _Photos
from mltta.images.decode import image_id, load_image
from mltta.images.specs import ViewSpec
from mltta.labels import LabelSet
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution
from mltta.session.features import FeatureStream
from tests import golden_data as golden

PHOTOS = sorted((Path(__file__).parents[2] / "examples" / "photos").glob("*.jpg"))
FOUR = [path for path in PHOTOS if path.stem in ("astronaut", "cat", "officer", "photographer")]
RANDOM = [kind for kind in CORRUPTIONS if kind not in ("low-contrast", "jpeg")]


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image, np.float64)


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    return load_image(PHOTOS[0])


@pytest.fixture
def dataset() -> Dataset:
    return Dataset(
        "toy-test",
        LabelSet.of("person, cat"),
        ids=[path.stem for path in FOUR],
        images=FOUR,
        targets=np.array([[1, 0], [0, 1], [1, 0], [1, 0]], np.int8),
        notes=("four photos",),
    )


@pytest.mark.parametrize("severity", [1, 2, 3])
@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_fog_leaves_a_share_of_all_edges_that_falls_with_severity(path, severity):
    clean = load_image(path)
    before, after = (
        np.diff(pixels(image).mean(2)) for image in (clean, corrupt_image(clean, "fog", severity))
    )
    kept = (before * after).sum() / (before * before).sum()
    assert kept == pytest.approx(1 / (1 + FOG[severity - 1][0]), abs=0.005)


# fog is apart: where it is patchy it may take less from a bright photo than an even one does
@pytest.mark.parametrize("kind", [kind for kind in CORRUPTIONS if kind != "fog"])
@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_a_higher_severity_changes_more(kind, path):
    clean = load_image(path)
    change = [np.abs(pixels(corrupt_image(clean, kind, s)) - pixels(clean)).mean() for s in (1, 2, 3)]
    assert 1 < change[0] < change[1] < change[2]


def test_the_same_image_is_corrupted_the_same_way_in_another_process():
    script = (
        "import sys; from mltta.data.corrupt import corrupt_image; from mltta.images.decode import image_id;"
        "print(*(image_id(corrupt_image(sys.argv[1], kind, 2, seed=7)) for kind in sys.argv[2:]))"
    )
    command = [sys.executable, "-c", script, str(PHOTOS[1]), *CORRUPTIONS]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    here = {}
    for kind in reversed(CORRUPTIONS):  # what came before makes no difference
        corrupt_image(PHOTOS[0], kind, 2, seed=7)
        here[kind] = image_id(corrupt_image(PHOTOS[1], kind, 2, seed=7))
    assert [here[kind] for kind in CORRUPTIONS] == other.stdout.split()


@pytest.mark.parametrize("kind", RANDOM)
def test_another_seed_or_another_image_draws_other_chances(kind, photo):
    assert image_id(corrupt_image(photo, kind, 2)) != image_id(corrupt_image(photo, kind, 2, seed=1))
    first, other = Image.new("RGB", (64, 48)), Image.new("RGB", (64, 48))
    other.putpixel((0, 0), (0, 0, 1))
    first.putpixel((32, 20), (255, 255, 255))
    other.putpixel((32, 20), (255, 255, 255))
    assert image_id(corrupt_image(first, kind)) != image_id(corrupt_image(other, kind))


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("size", [(1, 1), (1, 90), (90, 1), (2, 3), (3, 2000), (50, 33)])
def test_any_size_and_mode_comes_back_as_rgb_of_the_same_size(kind, size):
    for mode in ("RGB", "L", "RGBA"):
        for severity in (1, 2, 3):
            done = corrupt_image(Image.new(mode, size, 100 if mode == "L" else "teal"), kind, severity)
            assert (done.size, done.mode) == (size, "RGB")


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_low_contrast_keeps_every_mean_and_shrinks_the_spread(photo, severity):
    done, kept = pixels(corrupt_image(photo, "low-contrast", severity)), (0.4, 0.2, 0.05)[severity - 1]
    assert np.allclose(done.mean((0, 1)), pixels(photo).mean((0, 1)), atol=0.5)
    assert np.allclose(done.std((0, 1)), kept * pixels(photo).std((0, 1)), atol=0.5)


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_fog_brightens_a_dark_image_darkens_a_white_one_and_has_no_colour(severity):
    dark, white = Image.new("RGB", (120, 80), (10, 10, 10)), Image.new("RGB", (120, 80), "white")
    assert pixels(corrupt_image(dark, "fog", severity)).mean() > 40
    done = pixels(corrupt_image(white, "fog", severity))
    assert done.mean() < 240
    assert (done == done[..., :1]).all()


def test_fog_is_smooth_and_gets_rougher():
    grey = Image.new("RGB", (256, 256), "grey")
    steps = [np.abs(np.diff(pixels(corrupt_image(grey, "fog", s)), axis=0)).mean() for s in (1, 2, 3)]
    assert steps[0] < steps[1] < steps[2] < 4


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_motion_blur_keeps_the_mean_and_drags_a_point_into_a_line(photo, severity):
    done = pixels(corrupt_image(photo, "motion-blur", severity))
    assert np.allclose(done.mean((0, 1)), pixels(photo).mean((0, 1)), atol=1)
    wide = Image.new("RGB", (121, 121))
    wide.paste("white", (59, 59, 62, 62))  # three pixels wide, or rounding would eat the line
    rows, columns = np.nonzero(pixels(corrupt_image(wide, "motion-blur", severity))[..., 0])
    reach = 2 * MOTION[severity - 1][0]
    assert columns.max() - columns.min() + 1 <= reach + 3
    assert columns.max() - columns.min() + 1 >= 12
    assert columns.max() == 61  # dragged one way only
    slope = np.polyfit(columns, rows, 1)[0]
    assert abs(slope) < 1.05  # within 45 degrees of the horizontal
    assert np.abs(rows - np.polyval(np.polyfit(columns, rows, 1), columns)).max() < 3


def test_motion_blur_leaves_a_plain_image_as_it_is():
    plain = Image.new("RGB", (30, 20), (12, 200, 99))
    assert (pixels(corrupt_image(plain, "motion-blur")) == pixels(plain)).all()


@pytest.mark.parametrize("severity", [1, 2])
def test_noise_is_normal_with_the_stated_deviation_and_independent_from_value_to_value(severity):
    grey = Image.new("RGB", (301, 301), (127, 127, 127))
    noise = (pixels(corrupt_image(grey, "noise", severity)) - 127) / 255
    sigma = NOISE[severity - 1]
    assert abs(noise.mean()) < 3e-3
    assert noise.std() == pytest.approx(sigma, rel=0.02)
    for limit, share in ((1, 0.6827), (2, 0.9545)):
        assert (np.abs(noise) < limit * sigma).mean() == pytest.approx(share, abs=0.02)
    for a, b in ((noise[..., 0], noise[..., 1]), (noise[1:], noise[:-1]), (noise[:, 1:], noise[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_jpeg_is_encoding_again_at_the_stated_quality(photo, severity):
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=QUALITY[severity - 1])
    want = pixels(Image.open(file))
    assert (pixels(corrupt_image(photo, "jpeg", severity)) == want).all()


def test_a_long_comment_in_the_picture_does_not_spoil_jpeg():
    plain = Image.new("RGB", (8, 8), "red")
    commented = plain.copy()
    commented.info["comment"] = b"x" * 70_000
    assert image_id(corrupt_image(commented, "jpeg")) == image_id(corrupt_image(plain, "jpeg"))


def test_an_image_too_long_for_jpeg_says_so():
    with pytest.raises(ImageError, match=r"65501x1 pixels are too many for JPEG.*smaller"):
        corrupt_image(Image.new("RGB", (65_501, 1)), "jpeg")


def test_unknown_kinds_and_severities_say_what_there_is(dataset, photo):
    with pytest.raises(
        ConfigError, match=r"unknown corruption 'motion_blur'; choose from fog.*did you mean motion-blur\?"
    ):
        corrupt(dataset, "motion_blur")
    with pytest.raises(ConfigError, match="unknown corruption 'snow'"):
        corrupt_image(photo, "snow")
    for severity in (0, 4, 5, 2.0, True, "3", None):
        with pytest.raises(ConfigError, match=r"severity = .*1 \(weak\), 2 or 3 \(strong\)"):
            corrupt(dataset, "fog", severity)


def test_a_corrupted_dataset_has_its_own_name_and_says_what_was_done(dataset):
    worse = corrupt(dataset, "fog", 2)
    assert worse.name == "toy-test-fog-2"
    assert worse.notes[0] == "four photos"
    assert "corrupted by fog, severity 2 of 3 (ImageNet-C's 3), seed 0" in worse.summary()
    assert worse.ids is dataset.ids
    assert worse.targets is dataset.targets
    assert corrupt(dataset, "fog", 2, seed=5).name != worse.name  # or results of two seeds would mix


def test_images_of_a_corrupted_dataset_depend_on_neither_order_nor_selection(dataset):
    worse = corrupt(dataset, "noise", 1, seed=3)
    names = [image_id(image) for image in worse.images]
    assert names == [image_id(corrupt_image(path, "noise", 1, seed=3)) for path in FOUR]
    assert [image_id(image) for image in worse.select([3, 1]).images] == [names[3], names[1]]
    chosen_before = corrupt(dataset.select([2]), "noise", 1, seed=3)
    assert image_id(chosen_before.images[0]) == names[2]
    assert image_id(pickle.loads(pickle.dumps(worse)).images[0]) == names[0]


def test_images_are_fetched_only_when_asked_for(dataset, tmp_path):
    missing = Dataset("none", dataset.labels, ["a"], [tmp_path / "a.jpg"], dataset.targets[:1])
    worse = corrupt(missing, "jpeg")
    with pytest.raises(ImageError, match="no such file"):
        worse.images[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_evaluation_names_and_encodes_the_corrupted_pixels(dataset, tmp_path, workers):
    backbone, spec = golden.backbone("vit"), ViewSpec(count=1)

    def pipeline(data: Dataset) -> FeatureStream:
        return FeatureStream(
            backbone,
            [spec],
            execution=Execution(workers=workers),
            cache=lambda spec: FeatureCache(backbone, spec, 0, tmp_path),
            fetch=_Photos(data),
        )

    features, encoded = {}, []
    for data in (dataset, corrupt(dataset, "fog"), corrupt(dataset, "fog")):
        through = pipeline(data)
        found = [item.features[spec] for batch in through(range(4)) for item in batch]
        encoded.append((through.counts.encoded, through.counts.cached))
        if data.name in features:  # a second time from the cache, under the same names
            assert all((np.asarray(a) == b).all() for a, b in zip(found, features[data.name], strict=True))
        features[data.name] = found
    assert encoded == [(4, 0), (4, 0), (0, 4)]
    both = zip(features["toy-test"], features["toy-test-fog-3"], strict=True)
    assert all((np.asarray(a) != np.asarray(b)).any() for a, b in both)
    broken = Dataset("broken", dataset.labels, ["x"], [tmp_path / "x.jpg"], dataset.targets[:1])
    ((item,),) = pipeline(corrupt(broken, "fog"))(range(1))
    assert "no such file" in item.errors[spec]
