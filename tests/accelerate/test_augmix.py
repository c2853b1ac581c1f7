"""AugMix on a device draws what `mltta.images.augmix` draws, and does to pixels what Pillow does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from mltta.accelerate.augmix import mix_views
from mltta.images.augmix import AUGMIX_DRAWS, OPERATIONS, Operation, Plans, augmix, draw_plans

PHOTOS = Path(__file__).parents[2] / "examples" / "photos"
LOOKUPS = [OPERATIONS[name] for name in ("autocontrast", "equalize", "posterize", "solarize")]
MOVES = [operation for operation in OPERATIONS.values() if operation not in LOOKUPS]


def noise(size: int = 64, seed: int = 0, low: int = 0, high: int = 256) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(low, high, (size, size, 3), dtype=np.uint8))


def photo(name: str = "cat", size: int = 64) -> Image.Image:
    return Image.open(PHOTOS / f"{name}.jpg").convert("RGB").resize((size, size))


def batch(*images: Image.Image) -> torch.Tensor:
    return torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images])


def pixels(views: torch.Tensor) -> NDArray[np.float32]:
    return views.permute(0, 2, 3, 1).numpy()


def alone(operation: Operation, level: float, sign: int, count: int = 1) -> Plans:
    """The plans that show nothing but one operation, at the end of the second chain."""
    operations = np.full((count, 3, 3), -1)
    operations[:, 1, 2] = list(OPERATIONS.values()).index(operation)
    shares = np.tile([0.0, 0.0, 1.0, 0.0], (count, 1))
    return Plans(shares, operations, np.full((count, 3, 3), level), np.full((count, 3, 3), sign))


def plans(count: int) -> Plans:
    return draw_plans(np.random.default_rng(0).random((count, AUGMIX_DRAWS)))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("operation", LOOKUPS)
def test_operations_on_levels_are_pillows_to_the_bit(operation: Operation, level: float) -> None:
    flat, dark, two = noise(low=9, high=10), noise(low=3, high=90), noise(low=200, high=202)
    images = [photo(), photo("officer"), noise(), flat, dark, two]
    views = mix_views(batch(*images), alone(operation, level, 1, len(images)))
    for view, image in zip(pixels(views), images, strict=True):
        np.testing.assert_array_equal(view, np.asarray(operation(image, level, 1)))


def test_autocontrast_is_pillows_to_the_bit_whatever_the_darkest_and_the_lightest_level() -> None:
    images = [noise(24, seed, 2 * seed, 2 * seed + 3 + (seed * 37) % (254 - 2 * seed)) for seed in range(120)]
    views = mix_views(batch(*images), alone(OPERATIONS["autocontrast"], 0.5, 1, len(images)))
    for view, image in zip(pixels(views), images, strict=True):
        np.testing.assert_array_equal(view, np.asarray(ImageOps.autocontrast(image)))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("level", [0.1, 0.4, 0.7, 0.99])
@pytest.mark.parametrize("operation", MOVES)
@pytest.mark.parametrize("size", [64, 37])
def test_operations_that_move_pixels_are_pillows_but_for_a_level_here_and_there(
    operation: Operation, level: float, sign: int, size: int
) -> None:
    image = photo("astronaut", size)
    views = mix_views(batch(image), alone(operation, level, sign))
    difference = np.abs(pixels(views)[0] - np.asarray(operation(image, level, sign)))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.005


@pytest.mark.parametrize("picture", [photo, noise])
def test_the_mix_is_the_one_that_the_same_plan_gives_on_the_cpu(
    picture: Callable[[], Image.Image],
) -> None:
    image, count = picture(), 60
    views = mix_views(batch(image).repeat(count, 1, 1, 1), plans(count))
    expected = np.stack([augmix(image, plans(count), j) for j in range(count)])
    difference = np.abs(pixels(views) - expected)
    assert difference.mean() < 0.01
    assert (difference > 1).mean() < 1e-3
    assert np.median(difference.max((1, 2, 3))) < 1  # whole views agree, not only their average


def test_a_view_is_mixed_the_same_to_the_bit_whatever_comes_along() -> None:
    images = [photo(), noise(), photo("officer"), photo("photographer")]
    together = mix_views(batch(*images), plans(4))
    for j, image in enumerate(images):
        assert torch.equal(mix_views(batch(image), plans(4).pick(np.array([j])))[0], together[j])


def test_mixing_leaves_the_views_themselves_alone() -> None:
    views = batch(photo(), noise())
    before = views.clone()
    mix_views(views, plans(2))
    assert torch.equal(views, before)
