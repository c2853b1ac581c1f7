"""AugMix: blend a view with three randomly chained distortions of itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

CHAINS = 3
LONGEST_CHAIN = 3

# An operation gets the image, a level in [0.1, 1) and a sign.
Operation = Callable[[Image.Image, float, int], Image.Image]


def augmix(image: Image.Image, rng: np.random.Generator) -> NDArray[np.float32]:
    """Mix `m * image + (1 - m) * sum_j w_j * chain_j(image)`, with w ~ Dirichlet(1, 1, 1) and m ~ Beta(1, 1).

    The weights add up to one and normalisation is affine, so normalising this mix once is the same as
    mixing four normalised images.

    Returns:
        pixels of shape (H, W, 3), fractions of levels in [0, 255].
    """
    # Only rng.random() is drawn from: other distributions may change between releases of numpy.
    exponentials = [-math.log1p(-rng.random()) for _ in range(CHAINS)]
    share = rng.random()
    mixed: NDArray[np.float32] = np.multiply(np.asarray(image), share, dtype=np.float32)
    for exponential in exponentials:
        weight = (1 - share) * exponential / sum(exponentials)
        mixed += np.multiply(np.asarray(_chain(image, rng)), weight, dtype=np.float32)
    return mixed


def _chain(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Apply one to three operations, drawn with replacement, each at its own level and sign."""
    for _ in range(1 + int(rng.random() * LONGEST_CHAIN)):
        operation = OPERATIONS[int(rng.random() * len(OPERATIONS))]
        level = 0.1 + 0.9 * rng.random()
        sign = 1 if rng.random() < 0.5 else -1
        image = operation(image, level, sign)
    return image


def _whole(level: float, maximum: float) -> int:
    """Turn a level of at most 10 into a whole number of at most `maximum`."""
    return int(level * maximum / 10)


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    """Resample under the map from output to input coordinates; what lies outside is black."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _autocontrast(image: Image.Image, level: float, sign: int) -> Image.Image:
    return ImageOps.autocontrast(image)


def _equalize(image: Image.Image, level: float, sign: int) -> Image.Image:
    return ImageOps.equalize(image)


def _posterize(image: Image.Image, level: float, sign: int) -> Image.Image:
    return ImageOps.posterize(image, 4 - _whole(level, 4))


def _rotate(image: Image.Image, level: float, sign: int) -> Image.Image:
    return image.rotate(sign * _whole(level, 30), Image.Resampling.BILINEAR)


def _solarize(image: Image.Image, level: float, sign: int) -> Image.Image:
    return ImageOps.solarize(image, 256 - _whole(level, 256))


def _shear_x(image: Image.Image, level: float, sign: int) -> Image.Image:
    return _affine(image, 1, sign * level * 0.3 / 10, 0, 0, 1, 0)


def _shear_y(image: Image.Image, level: float, sign: int) -> Image.Image:
    return _affine(image, 1, 0, 0, sign * level * 0.3 / 10, 1, 0)


def _translate_x(image: Image.Image, level: float, sign: int) -> Image.Image:
    return _affine(image, 1, 0, sign * _whole(level, image.width / 3), 0, 1, 0)


def _translate_y(image: Image.Image, level: float, sign: int) -> Image.Image:
    return _affine(image, 1, 0, 0, 0, 1, sign * _whole(level, image.height / 3))


OPERATIONS: tuple[Operation, ...] = (
    _autocontrast,
    _equalize,
    _posterize,
    _rotate,
    _solarize,
    _shear_x,
    _shear_y,
    _translate_x,
    _translate_y,
)
