"""View 0 is the model's own preprocessing; view j belongs to (seed, image, spec, j) and to nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

from mltta.errors import ConfigError
from mltta.images import views
from mltta.images.decode import image_id
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess, clean_view, render_views
from tests.images.plain_crop import draw_crop, generator

SMALL = Preprocess(size=32)


def noise(width: int = 500, height: int = 375, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


# The clean view


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "random"])
@pytest.mark.parametrize(
    "size",
    [(500, 375), (333, 500), (224, 224), (100, 61), (31, 240), (1, 1), (601, 225), (5, 300), (3000, 60)],
)
def test_view_0_is_what_open_clip_gives(mode: str, interpolation: str, size: tuple[int, int]) -> None:
    image = noise(*size)
    cfg = PreprocessCfg(size=224, resize_mode=mode, interpolation=interpolation)
    rendered = render_views(image, ViewSpec(count=1), Preprocess.from_open_clip(vars(cfg)))
    expected = image_transform_v2(cfg, is_train=False)(image)
    torch.testing.assert_close(torch.from_numpy(rendered[0]), expected, atol=1e-6, rtol=0)


def test_view_0_keeps_another_models_numbers() -> None:
    cfg = PreprocessCfg(size=(64, 64), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.5))
    rendered = render_views(noise(), ViewSpec(count=1), Preprocess.from_open_clip(vars(cfg)))
    torch.testing.assert_close(
        torch.from_numpy(rendered[0]), image_transform_v2(cfg, is_train=False)(noise()), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("size", [(12, 300), (700, 60), (90, 2000)])
def test_a_very_long_image_has_the_sameclean_view_without_the_large_detour(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    smooth = noise(4, 4).resize(size, Image.Resampling.BICUBIC)
    usual = np.asarray(clean_view(smooth, Preprocess())).astype(int)
    monkeypatch.setattr(views, "_MOST_RESIZED", 0)
    short_cut = np.asarray(clean_view(smooth, Preprocess())).astype(int)
    assert np.abs(short_cut - usual).max() <= 2  # the two passes may come in the other order and round apart
    assert usual.std() > 5


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_a_line_of_100000_pixels_is_an_image_too(mode: str) -> None:
    for size in ((1, 100_000), (100_000, 1)):
        view = clean_view(Image.new("RGB", size, (10, 20, 30)), Preprocess(resize_mode=mode))
        assert view.size == (224, 224)
        assert view.getpixel((111, 111)) == (10, 20, 30)


# Whose views they are


def test_16_views_are_the_first_16_of_64() -> None:
    many = render_views(noise(), ViewSpec(count=64), SMALL)
    few = render_views(noise(), ViewSpec(count=16), SMALL)
    assert np.array_equal(few, many[:16])
    assert len({view.tobytes() for view in many}) == 64


@pytest.mark.parametrize("augmix", [False, True])
def test_chosen_views_equal_the_rows_of_the_full_render_to_the_bit(augmix: bool) -> None:
    spec = ViewSpec(count=20, augmix=augmix)
    every = render_views(noise(), spec, Preprocess())
    for indices in ([7, 0, 19, 7], [13], np.array([2, 1])):
        assert np.array_equal(
            render_views(noise(), spec, Preprocess(), indices=indices), every[np.asarray(indices)]
        )
    assert render_views(noise(), spec, SMALL, indices=[]).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("indices", [[20], [-1], [0, 99]])
def test_views_outside_the_spec_are_refused(indices: list[int]) -> None:
    with pytest.raises(ConfigError, match="out of range: give 0 to 19"):
        render_views(noise(), ViewSpec(count=20), SMALL, indices=indices)


def test_seed_and_image_id_change_the_crops_but_not_theclean_view() -> None:
    spec = ViewSpec(count=3)
    plain = render_views(noise(), spec, SMALL)
    assert np.array_equal(plain, render_views(noise(), spec, SMALL, image_id=image_id(noise())))
    for options in ({"seed": 1}, {"image_id": "another"}):
        other = render_views(noise(), spec, SMALL, **options)
        assert np.array_equal(plain[0], other[0])
        assert not np.array_equal(plain[1], other[1])
        assert not np.array_equal(plain[2], other[2])


def test_the_views_of_one_image_are_pinned() -> None:
    ramp = np.add.outer(np.arange(60), 2 * np.arange(80)).astype(np.uint8)
    rendered = render_views(Image.fromarray(ramp), ViewSpec(count=4), SMALL, seed=7, image_id="pinned")
    levels = (rendered * np.array(SMALL.std).reshape(3, 1, 1) + np.array(SMALL.mean).reshape(3, 1, 1)) * 255
    assert levels.mean(axis=(1, 2, 3)).tolist() == pytest.approx([108.5, 116.5, 121.5, 135.0], abs=0.01)


def test_augmix_sees_the_same_crops() -> None:
    ramp = Image.fromarray(np.tile(np.arange(250, dtype=np.uint8), (250, 1)))
    plain = render_views(ramp, ViewSpec(count=32), SMALL)
    mixed = render_views(ramp, ViewSpec(count=32, augmix=True), SMALL)
    assert np.array_equal(plain[0], mixed[0])
    assert not np.array_equal(plain[1:], mixed[1:])
    # The direction of the ramp tells whether a crop was mirrored; their means follow each other.
    slopes = [np.sign((some[1:, 0, :, 20] - some[1:, 0, :, 12]).mean(1)) for some in (plain, mixed)]
    assert np.array_equal(*slopes)
    assert {-1.0, 1.0} == set(slopes[0].tolist())
    means = np.stack([some[1:].mean(axis=(1, 2, 3)) for some in (plain, mixed)])
    assert np.corrcoef(means)[0, 1] > 0.8


def test_flip_mirrors_the_very_same_crop() -> None:
    never = render_views(noise(), ViewSpec(count=9, flip=0), SMALL)
    always = render_views(noise(), ViewSpec(count=9, flip=1), SMALL)
    sometimes = render_views(noise(), ViewSpec(count=9), SMALL)
    assert np.array_equal(always[1:], never[1:, ..., ::-1])
    kinds = [np.array_equal(view, plain) for view, plain in zip(sometimes[1:], never[1:], strict=True)]
    assert 0 < sum(kinds) < 8


# The crops


def test_a_crop_view_is_cut_resized_and_normalised_as_written_down() -> None:
    image = noise()
    rendered = render_views(image, ViewSpec(count=5, flip=0), Preprocess(), seed=3, image_id="x")
    for j in range(1, 5):
        left, top, width, height = draw_crop(
            generator(3, "x", j, "crop"), image.size, (0.08, 1.0), (3 / 4, 4 / 3)
        )
        box = (left, top, left + width, top + height)
        crop = np.asarray(image.crop(box).resize((224, 224), Image.Resampling.BILINEAR), np.float32)
        expected = (crop / 255 - np.float32(Preprocess().mean)) / np.float32(Preprocess().std)
        np.testing.assert_array_equal(rendered[j].transpose(1, 2, 0), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1)])
def test_an_image_that_no_crop_fits_has_views_too(size: tuple[int, int]) -> None:
    image = noise(*size)
    central = {(1, 5000): (0, 2499, 1, 2500), (5000, 1): (2499, 0, 2500, 1)}.get(size, (0, 0, 1, 1))
    colour = image.crop(central).resize((32, 32))
    expected = render_views(colour, ViewSpec(count=1), SMALL)
    assert np.array_equal(render_views(image, ViewSpec(count=3), SMALL)[1:], expected.repeat(2, axis=0))


def test_large_images_are_reduced_for_the_crops_alone() -> None:
    large = noise(300, 200)
    reduced = large.resize((96, 64), Image.Resampling.BILINEAR)
    ours = render_views(large, ViewSpec(count=6, working_size=64), SMALL, image_id="x")
    crops = render_views(reduced, ViewSpec(count=6, working_size=None), SMALL, image_id="x")
    original = render_views(large, ViewSpec(count=6, working_size=None), SMALL, image_id="x")
    assert np.array_equal(ours[1:], crops[1:])
    assert np.array_equal(ours[0], original[0])
    assert not np.array_equal(ours[1:], original[1:])
    assert np.array_equal(
        original, render_views(large, ViewSpec(count=6, working_size=200), SMALL, image_id="x")
    )


# Settings


def test_covers_needs_the_same_views_and_enough_of_them() -> None:
    spec = ViewSpec(count=64)
    assert spec.covers(ViewSpec(count=16))
    assert spec.covers(spec)
    assert not ViewSpec(count=16).covers(spec)
    for change in ({"augmix": True}, {"scale": (0.5, 1.0)}, {"flip": 0.0}, {"working_size": None}):
        assert not spec.covers(replace(spec, count=16, **change))


def test_lists_from_a_config_file_are_as_good_as_tuples() -> None:
    spec = ViewSpec(scale=[0.08, 1], ratio=[3 / 4, 4 / 3])
    assert spec == ViewSpec()
    assert hash(spec) == hash(ViewSpec())


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"count": 0}, "count"),
        ({"count": 1.5}, "count"),
        ({"count": True}, "count"),
        ({"scale": (0.0, 1.0)}, "scale"),
        ({"scale": (0.5, 0.2)}, "scale"),
        ({"scale": (0.5, 1.2)}, "scale"),
        ({"scale": 0.5}, "scale"),
        ({"ratio": (1.0,)}, "ratio"),
        ({"ratio": (1.0, math.nan)}, "ratio"),
        ({"flip": 1.1}, "flip"),
        ({"flip": "often"}, "flip"),
        ({"augmix": "yes"}, "augmix"),
        ({"working_size": 0}, "working_size"),
        ({"generated": 1}, "generated"),
    ],
)
def test_view_settings_that_make_no_sense_are_refused(settings_: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ViewSpec(**settings_)


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ({"size": (224, 336)}, r"\(224, 336\): only square"),
        ({"size": 0}, "size"),
        ({"mode": "L"}, "RGB"),
        ({"mean": (0.5, 0.5)}, "mean"),
        ({"std": (0.5, 0.0, 0.5)}, "std"),
        ({"interpolation": "nearest"}, "nearest"),
        ({"resize_mode": "stretch"}, "stretch"),
        ({"resize_mode": "longest", "fill_color": 128}, "fill_color 128"),
    ],
)
def test_preprocessing_that_cannot_be_followed_is_refused(cfg: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Preprocess.from_open_clip(cfg)


def test_preprocessing_reads_open_clips_spellings() -> None:
    assert Preprocess.from_open_clip({}) == Preprocess() == Preprocess.from_open_clip(vars(PreprocessCfg()))
    cfg = {"size": [336, 336], "mean": 0.5, "std": [0.5, 0.5, 0.5], "interpolation": "random"}
    assert Preprocess.from_open_clip(cfg) == Preprocess(336, (0.5,) * 3, (0.5,) * 3, "bicubic", "shortest")
