"""View 0 is the model's own preprocessing; view j belongs to (seed, image, spec, j) and to nothing else."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from mltta.errors import ConfigError
from mltta.images import views
from mltta.images.load import image_id
from mltta.images.views import (
    Preprocess,
    ViewSpec,
    _clean_view,
    _generator,
    draw_crop,
    render_views,
)

SMALL = Preprocess(size=32)
DEFAULT_SCALE, DEFAULT_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


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
    torch.testing.assert_close(rendered[0], expected, atol=1e-6, rtol=0)


def test_view_0_keeps_another_models_numbers() -> None:
    cfg = PreprocessCfg(size=(64, 64), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.5))
    rendered = render_views(noise(), ViewSpec(count=1), Preprocess.from_open_clip(vars(cfg)))
    torch.testing.assert_close(
        rendered[0], image_transform_v2(cfg, is_train=False)(noise()), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("size", [(12, 300), (700, 60), (90, 2000)])
def test_a_very_long_image_has_the_same_clean_view_without_the_large_detour(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    smooth = noise(4, 4).resize(size, Image.Resampling.BICUBIC)
    usual = np.asarray(_clean_view(smooth, Preprocess())).astype(int)
    monkeypatch.setattr(views, "_MOST_RESIZED", 0)
    short_cut = np.asarray(_clean_view(smooth, Preprocess())).astype(int)
    assert np.abs(short_cut - usual).max() <= 2  # the two passes may come in the other order and round apart
    assert usual.std() > 5


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_a_line_of_100000_pixels_is_an_image_too(mode: str) -> None:
    for size in ((1, 100_000), (100_000, 1)):
        view = _clean_view(Image.new("RGB", size, (10, 20, 30)), Preprocess(resize_mode=mode))
        assert view.size == (224, 224)
        assert view.getpixel((111, 111)) == (10, 20, 30)


# Whose views they are


def test_16_views_are_the_first_16_of_64() -> None:
    many = render_views(noise(), ViewSpec(count=64), SMALL)
    few = render_views(noise(), ViewSpec(count=16), SMALL)
    assert torch.equal(few, many[:16])
    assert len({view.numpy().tobytes() for view in many}) == 64


@pytest.mark.parametrize("augmix", [False, True])
def test_chosen_views_equal_the_rows_of_the_full_render_to_the_bit(augmix: bool) -> None:
    spec = ViewSpec(count=20, augmix=augmix)
    every = render_views(noise(), spec, Preprocess())
    for indices in ([7, 0, 19, 7], [13], torch.tensor([2, 1])):
        assert torch.equal(
            render_views(noise(), spec, Preprocess(), indices=indices), every[torch.as_tensor(indices)]
        )
    assert render_views(noise(), spec, SMALL, indices=[]).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("indices", [[20], [-1], [0, 99]])
def test_views_outside_the_spec_are_refused(indices: list[int]) -> None:
    with pytest.raises(ConfigError, match="not among views 0 to 19"):
        render_views(noise(), ViewSpec(count=20), SMALL, indices=indices)


def test_seed_and_image_id_change_the_crops_but_not_the_clean_view() -> None:
    spec = ViewSpec(count=3)
    plain = render_views(noise(), spec, SMALL)
    assert torch.equal(plain, render_views(noise(), spec, SMALL, image_id=image_id(noise())))
    for options in ({"seed": 1}, {"image_id": "another"}):
        other = render_views(noise(), spec, SMALL, **options)
        assert torch.equal(plain[0], other[0])
        assert not torch.equal(plain[1], other[1])
        assert not torch.equal(plain[2], other[2])


def test_the_views_of_one_image_are_pinned() -> None:
    ramp = np.add.outer(np.arange(60), 2 * np.arange(80)).astype(np.uint8)
    rendered = render_views(Image.fromarray(ramp), ViewSpec(count=4), SMALL, seed=7, image_id="pinned")
    levels = (rendered * torch.tensor(SMALL.std).view(3, 1, 1) + torch.tensor(SMALL.mean).view(3, 1, 1)) * 255
    assert levels.mean(dim=(1, 2, 3)).tolist() == pytest.approx([108.5, 116.5, 121.5, 135.0], abs=0.01)


def test_augmix_sees_the_same_crops() -> None:
    ramp = Image.fromarray(np.tile(np.arange(250, dtype=np.uint8), (250, 1)))
    plain = render_views(ramp, ViewSpec(count=32), SMALL)
    mixed = render_views(ramp, ViewSpec(count=32, augmix=True), SMALL)
    assert torch.equal(plain[0], mixed[0])
    assert not torch.equal(plain[1:], mixed[1:])
    # The direction of the ramp tells whether a crop was mirrored; their means follow each other.
    slopes = [(some[1:, 0, :, 20] - some[1:, 0, :, 12]).mean(1).sign() for some in (plain, mixed)]
    assert torch.equal(*slopes)
    assert {-1.0, 1.0} == set(slopes[0].tolist())
    means = torch.stack([some[1:].mean(dim=(1, 2, 3)) for some in (plain, mixed)])
    assert torch.corrcoef(means)[0, 1] > 0.8


def test_flip_mirrors_the_very_same_crop() -> None:
    never = render_views(noise(), ViewSpec(count=9, flip=0), SMALL)
    always = render_views(noise(), ViewSpec(count=9, flip=1), SMALL)
    sometimes = render_views(noise(), ViewSpec(count=9), SMALL)
    assert torch.equal(always[1:], never[1:].flip(3))
    kinds = [torch.equal(view, plain) for view, plain in zip(sometimes[1:], never[1:], strict=True)]
    assert 0 < sum(kinds) < 8


# The crops


def test_a_crop_view_is_cut_resized_and_normalised_as_written_down() -> None:
    image = noise()
    rendered = render_views(image, ViewSpec(count=5, flip=0), Preprocess(), seed=3, image_id="x")
    for j in range(1, 5):
        box = draw_crop(_generator(3, "x", j, "crop"), image.size, DEFAULT_SCALE, DEFAULT_RATIO)
        crop = np.asarray(image.crop(box).resize((224, 224), Image.Resampling.BILINEAR), np.float32)
        expected = (crop / 255 - np.float32(Preprocess().mean)) / np.float32(Preprocess().std)
        np.testing.assert_array_equal(rendered[j].permute(1, 2, 0).numpy(), expected)


class Replay:
    """A generator that gives a recorded list of numbers."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = iter(numbers)

    def random(self) -> float:
        return next(self.numbers)


def naive_crop(
    numbers: list[float], size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
):
    """The crop of torchvision as its documentation tells it: (left, top, width, height)."""
    draw = iter(numbers)
    width, height = size
    for _ in range(10):
        area = (scale[0] + next(draw) * (scale[1] - scale[0])) * width * height
        aspect = ratio[0] * (ratio[1] / ratio[0]) ** next(draw)
        w = round((area * aspect) ** 0.5)
        h = round((area / aspect) ** 0.5)
        if w >= 1 and h >= 1 and w <= width and h <= height:
            top = math.floor(next(draw) * (height - h + 1))
            left = math.floor(next(draw) * (width - w + 1))
            return left, top, w, h
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


sides = st.integers(1, 5000)
numbers = st.lists(st.floats(0, 1, exclude_max=True), min_size=22, max_size=22)


@settings(max_examples=300, deadline=None)
@given(sides, sides, numbers)
def test_crops_are_drawn_as_torchvision_draws_them(width: int, height: int, draws: list[float]) -> None:
    left, top, right, bottom = draw_crop(Replay(draws), (width, height), DEFAULT_SCALE, DEFAULT_RATIO)
    expected = naive_crop(draws, (width, height), DEFAULT_SCALE, DEFAULT_RATIO)
    # The twin's powers may round a side the other way by one pixel; more is another algorithm.
    assert max(map(abs, np.subtract((left, top, right - left, bottom - top), expected))) <= 1


@settings(max_examples=300, deadline=None)
@given(
    sides,
    sides,
    st.integers(0, 2**32),
    st.tuples(st.floats(0.001, 1), st.floats(0.001, 1)).map(lambda pair: tuple(sorted(pair))),
    st.tuples(st.floats(0.05, 20), st.floats(0.05, 20)).map(lambda pair: tuple(sorted(pair))),
)
def test_crops_lie_inside_any_image_under_any_spec(
    width: int, height: int, seed: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    left, top, right, bottom = draw_crop(np.random.default_rng(seed), (width, height), scale, ratio)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@pytest.mark.parametrize(
    ("size", "box"),
    [((1, 1), (0, 0, 1, 1)), ((1, 5000), (0, 2499, 1, 2500)), ((5000, 1), (2499, 0, 2500, 1))],
)
def test_where_no_crop_fits_the_central_one_is_taken(size: tuple[int, int], box: tuple[int, ...]) -> None:
    assert draw_crop(np.random.default_rng(0), size, DEFAULT_SCALE, DEFAULT_RATIO) == box
    assert render_views(noise(*size), ViewSpec(count=3), SMALL).isfinite().all()


def test_areas_ratios_and_places_are_spread_as_torchvision_spreads_them() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    image = Image.new("RGB", (640, 480))
    ours, theirs = [], []
    for _ in range(4000):
        left, top, right, bottom = draw_crop(rng, image.size, DEFAULT_SCALE, DEFAULT_RATIO)
        ours.append((left, top, right - left, bottom - top))
        y, x, h, w = RandomResizedCrop.get_params(image, [*DEFAULT_SCALE], [*DEFAULT_RATIO])
        theirs.append((x, y, w, h))
    quantiles = np.linspace(0.05, 0.95, 10)
    for ours_of, theirs_of in zip(np.array(ours).T, np.array(theirs).T, strict=True):
        np.testing.assert_allclose(
            np.quantile(ours_of, quantiles), np.quantile(theirs_of, quantiles), atol=20
        )
    areas = np.prod(np.array(ours)[:, 2:], axis=1) / (640 * 480)
    small = np.histogram(areas, bins=[0.08, 0.18, 0.28, 0.38, 0.48])[0]  # these always fit: uniform
    np.testing.assert_allclose(small / small.sum(), 0.25, atol=0.04)
    assert areas.min() > 0.079
    assert areas.max() > 0.97


def test_large_images_are_reduced_for_the_crops_alone() -> None:
    large = noise(300, 200)
    reduced = large.resize((96, 64), Image.Resampling.BILINEAR)
    ours = render_views(large, ViewSpec(count=6, working_size=64), SMALL, image_id="x")
    crops = render_views(reduced, ViewSpec(count=6, working_size=None), SMALL, image_id="x")
    original = render_views(large, ViewSpec(count=6, working_size=None), SMALL, image_id="x")
    assert torch.equal(ours[1:], crops[1:])
    assert torch.equal(ours[0], original[0])
    assert not torch.equal(ours[1:], original[1:])
    assert torch.equal(
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
