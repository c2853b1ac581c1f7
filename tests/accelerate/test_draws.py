"""The numbers drawn for many views at once are those that `mltta.images.views` draws for each."""

from __future__ import annotations

import numpy as np

from mltta.accelerate.draws import draw_numbers
from mltta.images.views import draw_numbers as one_by_one
from tests.images.plain_crop import generator

IDS = [f"{number:x}" for number in range(30)]


def test_numbers_are_those_of_each_views_own_generator() -> None:
    numbers = draw_numbers(7, IDS, 4, "augmix", 40)
    expected = [generator(7, name, j, "augmix").random(40) for name in IDS for j in (1, 2, 3)]
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(numbers[3:6], one_by_one(7, IDS[1], (1, 2, 3), "augmix", 40))


def test_no_images_and_no_crops_need_no_numbers() -> None:
    assert draw_numbers(0, [], 64, "crop", 3).shape == (0, 3)
    assert draw_numbers(0, IDS, 1, "crop", 3).shape == (0, 3)
