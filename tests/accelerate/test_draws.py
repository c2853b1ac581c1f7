"""The numbers drawn for many views at once are those that `mltta.images.views` draws for each."""

from __future__ import annotations

import numpy as np
import pytest

from mltta.accelerate.draws import draw_crops, draw_numbers
from mltta.images.views import _generator, draw_crop

IDS = [f"{number:x}" for number in range(30)]


def test_numbers_are_those_of_each_views_own_generator() -> None:
    numbers = draw_numbers(7, IDS, 4, "augmix", 40)
    expected = [_generator(7, name, j, "augmix").random(40) for name in IDS for j in (1, 2, 3)]
    np.testing.assert_array_equal(numbers, expected)


def test_no_images_and_no_crops_need_no_numbers() -> None:
    assert draw_numbers(0, [], 64, "crop", 3).shape == (0, 3)
    assert draw_numbers(0, IDS, 1, "crop", 3).shape == (0, 3)


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0), (0.0001, 0.001)])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (0.2, 9.0), (1.0, 1.0), (5.0, 8.0)])
def test_crops_and_flips_are_the_very_same(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    some = [(640, 480), (375, 500), (1, 1), (7, 5), (1, 300), (900, 3), (64, 64), (3, 4000), (1365, 1024)]
    sizes = [some[i % len(some)] for i in range(len(IDS))]
    crops = draw_crops(3, IDS, 11, np.repeat(sizes, 10, 0), scale, ratio, 0.3)
    expected = []
    for name, size in zip(IDS, sizes, strict=True):
        for j in range(1, 11):
            rng = _generator(3, name, j, "crop")
            left, top, right, bottom = draw_crop(rng, size, scale, ratio)
            expected.append((left, top, right - left, bottom - top, rng.random() < 0.3))
    np.testing.assert_array_equal(crops, expected)
