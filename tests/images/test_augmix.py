"""AugMix mixes a view with distortions of itself, mildly, and only as its random stream says."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from mltta.images.augmix import AUGMIX_DRAWS, OPERATIONS, augmix, draw_plans
from mltta.images.views import CLIP_MEAN, CLIP_STD


def picture(size: int = 224) -> Image.Image:
    smooth = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(smooth).resize((size, size), Image.Resampling.BICUBIC)


def normalise(pixels: object) -> np.ndarray:
    return (np.asarray(pixels, np.float64) / 255 - CLIP_MEAN) / CLIP_STD


def mixed(image: Image.Image, seed: int) -> np.ndarray:
    """The mix that a generator's numbers plan."""
    return augmix(image, draw_plans(np.random.default_rng(seed).random((1, AUGMIX_DRAWS))), 0)


def naive_augmix(image: Image.Image, rng: np.random.Generator) -> np.ndarray:
    """The recipe word for word: normalise each of the four images, then mix."""
    w = np.array([-np.log(1 - rng.random()) for _ in range(3)])
    w /= w.sum()
    m = rng.random()
    mix = np.zeros((image.height, image.width, 3))
    for j in range(3):
        chain = image
        for _ in range(int(rng.random() * 3) + 1):
            operation = list(OPERATIONS.values())[int(rng.random() * 9)]
            level = rng.random() * 0.9 + 0.1
            chain = operation(chain, level, 1 if rng.random() < 0.5 else -1)
        mix += w[j] * normalise(chain)
    return m * normalise(image) + (1 - m) * mix


@pytest.mark.parametrize("seed", range(5))
def test_normalising_the_mix_equals_mixing_normalised_images(seed: int) -> None:
    ours = normalise(mixed(picture(), seed))
    expected = naive_augmix(picture(), np.random.default_rng(seed))
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert np.abs(ours - normalise(picture())).max() > 1e-3


def test_the_mix_depends_on_its_stream_alone_and_leaves_the_image_as_it_was() -> None:
    image = picture()
    before = image.tobytes()
    first, again, other = (mixed(image, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1
    assert image.tobytes() == before


def test_mixed_pixels_stay_between_black_and_white() -> None:
    extremes = Image.fromarray(np.random.default_rng(1).choice([0, 255], (64, 64, 3)).astype(np.uint8))
    for seed in range(20):
        pixels = mixed(extremes, seed)
        assert pixels.dtype == np.float32
        assert -1e-3 <= pixels.min() <= pixels.max() <= 255.001


def test_weights_are_those_of_a_flat_dirichlet() -> None:
    shares = draw_plans(np.random.default_rng(0).random((3000, AUGMIX_DRAWS))).shares
    total = shares[:, 1:].sum(1)  # 1 - m, uniform
    weights = shares[:, 1:] / total[:, None]  # each Beta(1, 2): mean 1/3, variance 1/18
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_allclose(np.quantile(total, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03)
    np.testing.assert_allclose(weights.mean(0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(weights.var(0), 1 / 18, atol=0.006)


def test_chains_hold_one_to_three_operations_and_use_all_nine() -> None:
    plans = draw_plans(np.random.default_rng(0).random((300, AUGMIX_DRAWS)))
    there = plans.operation >= 0
    lengths = there.sum(2).ravel()
    assert (there == (np.arange(3) < lengths.reshape(300, 3, 1))).all()  # a chain has no gaps
    indices, levels, signs = plans.operation[there], plans.level[there], plans.sign[there]
    np.testing.assert_allclose(np.bincount(lengths, minlength=4) / 900, [0, 1 / 3, 1 / 3, 1 / 3], atol=0.05)
    np.testing.assert_allclose(np.bincount(indices) / len(indices), 1 / 9, atol=0.03)
    assert 0.1 <= levels.min() < 0.11
    assert 0.99 < levels.max() < 1
    assert set(signs.tolist()) == {-1, 1}
    assert abs(signs.mean()) < 0.1


def test_operations_at_known_levels() -> None:
    image = picture()
    pixels = np.asarray(image).astype(int)

    def run(name: str, level: float, sign: int = 1) -> np.ndarray:
        return np.asarray(OPERATIONS[name](image, level, sign)).astype(int)

    np.testing.assert_array_equal(run("posterize", 0.99), pixels & 0xF0)
    np.testing.assert_array_equal(run("solarize", 0.99), np.where(pixels < 231, pixels, 255 - pixels))
    np.testing.assert_array_equal(run("solarize", 0.1), np.where(pixels < 254, pixels, 255 - pixels))
    shifted = run("translate_x", 0.99)  # 7 pixels of 224: what was at x + 7 is now at x
    np.testing.assert_array_equal(shifted[:, :-7], pixels[:, 7:])
    assert not shifted[:, -7:].any()
    shifted = run("translate_y", 0.99, -1)
    np.testing.assert_array_equal(shifted[7:], pixels[:-7])
    assert not shifted[:7].any()
    np.testing.assert_array_equal(run("rotate", 0.3), pixels)  # less than a whole degree
    np.testing.assert_array_equal(
        run("rotate", 0.99, -1), np.asarray(image.rotate(-2, Image.Resampling.BILINEAR))
    )
    np.testing.assert_array_equal(run("equalize", 0.5), np.asarray(ImageOps.equalize(image)))
    np.testing.assert_array_equal(run("autocontrast", 0.5), np.asarray(ImageOps.autocontrast(image)))


def test_shear_moves_a_line_by_its_slope() -> None:
    line = Image.new("RGB", (200, 200))
    line.paste((255, 255, 255), (100, 0, 101, 200))  # a vertical line at x = 100
    sheared = np.asarray(OPERATIONS["shear_x"](line, 1.0, 1), float)[:, :, 0]
    centres = sheared @ np.arange(200) / sheared.sum(1)
    np.testing.assert_allclose(centres, 100 - 0.03 * (np.arange(200) + 0.5), atol=0.05)
    other = np.asarray(OPERATIONS["shear_y"](line.transpose(Image.Transpose.TRANSPOSE), 1.0, -1), float)[
        :, :, 0
    ]
    centres = np.arange(200) @ other / other.sum(0)
    np.testing.assert_allclose(centres, 100 + 0.03 * (np.arange(200) + 0.5), atol=0.05)
