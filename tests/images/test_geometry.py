"""Crops lie where torchvision would cut them, to the pixel of the scalar code they replace."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from mltta.images.geometry import CROP_DRAWS, crop_boxes
from tests.images.plain_crop import draw_crop, generator

DEFAULT_SCALE, DEFAULT_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def boxes(
    numbers: np.ndarray,
    size: tuple[int, int],
    scale: tuple[float, float] = DEFAULT_SCALE,
    ratio: tuple[float, float] = DEFAULT_RATIO,
    flip: float = 0.5,
) -> np.ndarray:
    """Crops (V, 5) of one image by numbers (V, CROP_DRAWS); with so many every crop fits."""
    crops, left_over = crop_boxes(numbers, np.tile(size, (len(numbers), 1)), scale, ratio, flip)
    assert not len(left_over)
    return crops


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
draws = st.lists(st.floats(0, 1, exclude_max=True), min_size=CROP_DRAWS, max_size=CROP_DRAWS)


@settings(max_examples=300, deadline=None)
@given(sides, sides, draws)
def test_crops_are_drawn_as_torchvision_draws_them(width: int, height: int, draws: list[float]) -> None:
    ours = boxes(np.array([draws]), (width, height))[0, :4]
    expected = naive_crop(draws, (width, height), DEFAULT_SCALE, DEFAULT_RATIO)
    # The twin's powers may round a side the other way by one pixel; more is another algorithm.
    assert np.abs(ours - expected).max() <= 1


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0), (0.0001, 0.001)])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (0.2, 9.0), (1.0, 1.0), (5.0, 8.0)])
def test_crops_and_flips_are_those_that_a_generator_draws_one_by_one(
    scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    some = [(640, 480), (375, 500), (1, 1), (7, 5), (1, 300), (900, 3), (64, 64), (3, 4000), (1365, 1024)]
    sizes = np.repeat(some, 30, axis=0)
    numbers = [generator(3, "x", j, "crop").random(CROP_DRAWS) for j in range(len(sizes))]
    crops, left_over = crop_boxes(np.array(numbers), sizes, scale, ratio, 0.3)
    assert not len(left_over)
    for j, size in enumerate(sizes.tolist()):
        rng = generator(3, "x", j, "crop")
        assert (*draw_crop(rng, tuple(size), scale, ratio), rng.random() < 0.3) == tuple(crops[j])


def test_with_few_numbers_crops_are_the_same_or_left_over() -> None:
    scale, ratio = (0.6, 1.0), (0.2, 9.0)  # few tries fit
    numbers = np.random.default_rng(0).random((500, CROP_DRAWS))
    every = boxes(numbers, (640, 480), scale, ratio)
    some, left_over = crop_boxes(numbers[:, :7], np.tile((640, 480), (500, 1)), scale, ratio, 0.5)
    fitted = np.setdiff1d(np.arange(500), left_over)
    np.testing.assert_array_equal(some[fitted], every[fitted])
    assert 50 < len(left_over) < 450


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
    numbers = np.random.default_rng(seed).random((1, CROP_DRAWS))
    left, top, w, h, _ = boxes(numbers, (width, height), scale, ratio)[0]
    assert 0 <= left < left + w <= width
    assert 0 <= top < top + h <= height


@pytest.mark.parametrize(
    ("size", "box"),
    [((1, 1), (0, 0, 1, 1)), ((1, 5000), (0, 2499, 1, 1)), ((5000, 1), (2499, 0, 1, 1))],
)
def test_where_no_crop_fits_the_central_one_is_taken(size: tuple[int, int], box: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(0).random((1, CROP_DRAWS))
    assert tuple(boxes(numbers, size)[0, :4]) == box


def test_areas_ratios_and_places_are_spread_as_torchvision_spreads_them() -> None:
    torch.manual_seed(0)
    image = Image.new("RGB", (640, 480))
    ours = boxes(np.random.default_rng(0).random((4000, CROP_DRAWS)), image.size)[:, :4]
    theirs = []
    for _ in range(4000):
        y, x, h, w = RandomResizedCrop.get_params(image, [*DEFAULT_SCALE], [*DEFAULT_RATIO])
        theirs.append((x, y, w, h))
    quantiles = np.linspace(0.05, 0.95, 10)
    for ours_of, theirs_of in zip(ours.T, np.array(theirs).T, strict=True):
        np.testing.assert_allclose(
            np.quantile(ours_of, quantiles), np.quantile(theirs_of, quantiles), atol=20
        )
    areas = np.prod(ours[:, 2:], axis=1) / (640 * 480)
    small = np.histogram(areas, bins=[0.08, 0.18, 0.28, 0.38, 0.48])[0]  # these always fit: uniform
    np.testing.assert_allclose(small / small.sum(), 0.25, atol=0.04)
    assert areas.min() > 0.079
    assert areas.max() > 0.97
