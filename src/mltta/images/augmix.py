"""AugMix: blend a view with three randomly chained distortions of itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from mltta.images.geometry import Floats, Ints

CHAINS = 3
LONGEST_CHAIN = 3
#: maximum random numbers per view: one per share, and per chain its length and three per step
AUGMIX_DRAWS = CHAINS + 1 + CHAINS * (1 + 3 * LONGEST_CHAIN)

Operation = Callable[[Image.Image, float, int], Image.Image]


class Plans(NamedTuple):
    """The augmentations for V views."""

    shares: Floats  # weights of the view and its chains, (V, 1 + CHAINS)
    operation: Ints  # index into OPERATIONS, or -1 past the end of a chain, (V, CHAINS, LONGEST_CHAIN)
    level: Floats  # in [0.1, 1); same shape, like sign
    sign: Ints

    def pick(self, rows: Ints) -> Plans:
        """Select the plans of some views."""
        return Plans(self.shares[rows], self.operation[rows], self.level[rows], self.sign[rows])


def draw_plans(numbers: Floats) -> Plans:
    """Plans from random numbers (V, AUGMIX_DRAWS): w ~ Dirichlet(1, 1, 1), m ~ Beta(1, 1), chains of one to three
    operations drawn with replacement, each at its own level and sign."""
    drawn = [math.log1p(-x) for x in numbers[:, :CHAINS].ravel().tolist()]
    exponentials = -np.array(drawn).reshape(-1, CHAINS)
    share = numbers[:, CHAINS : CHAINS + 1]
    shares = np.hstack([share, (1 - share) * exponentials / exponentials.sum(1, keepdims=True)])
    shape = (len(numbers), CHAINS, LONGEST_CHAIN)
    operation, level, sign = np.empty(shape, np.int64), np.empty(shape), np.empty(shape, np.int64)
    at: Ints = np.full((len(numbers), 1), CHAINS + 1)
    for chain in range(CHAINS):
        length = 1 + (np.take_along_axis(numbers, at, 1) * LONGEST_CHAIN).astype(np.int64)
        for depth in range(LONGEST_CHAIN):
            # Numbers past the end of a chain belong to the next one and are not used here.
            places = np.minimum(at + 3 * depth + np.arange(1, 4), AUGMIX_DRAWS - 1)
            which, how_much, side = np.take_along_axis(numbers, places, 1).T
            operation[:, chain, depth] = np.where(depth < length[:, 0], which * len(OPERATIONS), -1)
            level[:, chain, depth] = 0.1 + 0.9 * how_much
            sign[:, chain, depth] = np.where(side < 0.5, 1, -1)
        at = at + 1 + 3 * length
    return Plans(shares, operation, level, sign)


def augmix(image: Image.Image, plans: Plans, v: int) -> NDArray[np.float32]:
    """Mix `m * image + (1 - m) * sum_j w_j * chain_j(image)` with plan v.

    The weights sum to one and normalisation is affine, so normalising the mix is the same as mixing four
    normalised images.

    Returns:
        pixels of shape (H, W, 3), floats in [0, 255].
    """
    share, *weights = plans.shares[v].tolist()
    operations = list(OPERATIONS.values())
    mixed: NDArray[np.float32] = np.multiply(np.asarray(image), share, dtype=np.float32)
    for chain, weight in enumerate(weights):
        changed = image
        for operation, level, sign in zip(*(field[v, chain].tolist() for field in plans[1:]), strict=True):
            if operation >= 0:
                changed = operations[operation](changed, level, sign)
        mixed += np.multiply(np.asarray(changed), weight, dtype=np.float32)
    return mixed


def _whole(level: float, maximum: float) -> int:
    return int(level * maximum / 10)


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    """Resample with a map from output to input coordinates; outside is black."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


#: by name, in index order; level is in [0.1, 1), sign is 1 or -1
OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, level, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, level, sign: ImageOps.equalize(image),
    "posterize": lambda image, level, sign: ImageOps.posterize(image, 4 - _whole(level, 4)),
    "rotate": lambda image, level, sign: image.rotate(sign * _whole(level, 30), Image.Resampling.BILINEAR),
    "solarize": lambda image, level, sign: ImageOps.solarize(image, 256 - _whole(level, 256)),
    "shear_x": lambda image, level, sign: _affine(image, 1, sign * level * 0.3 / 10, 0, 0, 1, 0),
    "shear_y": lambda image, level, sign: _affine(image, 1, 0, 0, sign * level * 0.3 / 10, 1, 0),
    "translate_x": lambda im, level, sign: _affine(im, 1, 0, sign * _whole(level, im.width / 3), 0, 1, 0),
    "translate_y": lambda im, level, sign: _affine(im, 1, 0, 0, 0, 1, sign * _whole(level, im.height / 3)),
}
