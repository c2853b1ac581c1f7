"""Where views lie in an image: pure arithmetic, the same whoever renders them.

Random numbers come in as an array, one row a view, as its own generator draws them one after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mltta.images.views import Preprocess

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: a crop may use up two numbers for each try, two for its place and one for its flip
TRIES = 10
CROP_DRAWS = 2 * TRIES + 3
#: the short side of a reduced photo is at least this, and it is reduced by so much at most
LEAST_SIDE, MOST_REDUCED = 750, 8


class Axis(NamedTuple):
    """Resampling along one axis: a box, the size it gets, the first pixel of that which is kept, and its flip.

    Pixels may be kept from beyond the new size: they are black.
    """

    start: int
    length: int
    size: int
    first: int = 0
    flip: int = 0


def scale_of(size: tuple[int, int]) -> int:
    """By how much a photo of this width and height is reduced before its views are made: 1, 2, 4 or 8.

    By its size alone, so alike for every method, model, batch and worker, and so that views still find their pixels:
    a crop of 8% of 1000 x 750 pixels has 245 a side where a model sees 224, and its local views look at 512. Twelve
    megapixels of a phone are seen at a quarter of their sides, which costs a third less than at half.

    Example:
        >>> [scale_of(size) for size in ((1499, 9000), (3264, 2448), (4000, 3000), (8160, 6120))]
        [1, 2, 4, 8]
    """
    scale = 1
    while scale < MOST_REDUCED and -(-min(size) // scale) >= 2 * LEAST_SIDE:  # sides are rounded up
        scale *= 2
    return scale


def clean_axes(size: tuple[int, int], preprocess: Preprocess) -> tuple[Axis, Axis]:
    """How an image of this width and height becomes the clean view, along x and along y, as open_clip has it."""
    (width, height), side, short, long = size, preprocess.size, min(size), max(size)
    if preprocess.resize_mode == "squash":
        return Axis(0, width, side), Axis(0, height, side)
    if preprocess.resize_mode == "longest":
        w, h = (max(1, round(length / (long / side))) for length in size)
        return Axis(0, width, w, -((side - w) // 2)), Axis(0, height, h, -((side - h) // 2))
    new_long = int(side * long / short)
    w, h = (side, new_long) if width <= height else (new_long, side)
    return Axis(0, width, w, round((w - side) / 2)), Axis(0, height, h, round((h - side) / 2))


def working_size(size: tuple[int, int], most: int | None) -> tuple[int, int]:
    """How large the copy is that crops are cut from: its short side is at most so much."""
    short = min(size)
    if most is None or short <= most:
        return size
    width, height = (round(side * most / short) for side in size)
    return width, height


def crop_boxes(
    numbers: Floats, sizes: Ints, scale: tuple[float, float], ratio: tuple[float, float], flip: float
) -> tuple[Ints, Ints]:
    """Random-resized crops as torchvision draws them: left, top, width, height, flip (V, 5), and which never fitted.

    Args:
        numbers: (V, draws) in [0, 1); CROP_DRAWS of them are enough for all tries, and then every crop fits.
        sizes: (V, 2) width and height of the image that each is cut from.
    """
    crops = np.zeros((len(sizes), 5), np.int64)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    left_over = np.arange(len(sizes))
    for first in range(0, numbers.shape[1] - 3, 2):
        if not len(left_over):
            break
        area_draw, aspect_draw, top_draw, left_draw, flip_draw = numbers[left_over, first : first + 5].T
        width, height = sizes[left_over].T
        area = width * height * (scale[0] + (scale[1] - scale[0]) * area_draw)
        # numpy's own exp may differ from Python's in the last bit.
        aspect = np.array([math.exp(low + (high - low) * draw) for draw in aspect_draw.tolist()])
        w, h = (np.rint(np.sqrt(side)).astype(np.int64) for side in (area * aspect, area / aspect))
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        top = (top_draw * (height - h + 1)).astype(np.int64)
        left = (left_draw * (width - w + 1)).astype(np.int64)
        crops[left_over[fits]] = np.stack([left, top, w, h, flip_draw < flip], 1)[fits]
        left_over = left_over[~fits]
    if numbers.shape[1] == CROP_DRAWS:  # all tries were made: the largest central one
        width, height = sizes[left_over].T
        w = np.minimum(width, np.maximum(1, np.rint(height * ratio[1]))).astype(np.int64)
        h = np.minimum(height, np.maximum(1, np.rint(width / ratio[0]))).astype(np.int64)
        last = numbers[left_over, 2 * TRIES] < flip
        crops[left_over] = np.stack([(width - w) // 2, (height - h) // 2, w, h, last], 1)
        left_over = left_over[:0]
    return crops, left_over


def cover(starts: Sequence[float], width: float, cells: int) -> Floats:
    """How much of each of so many equal cells of [0, 1] intervals of a width cover, (intervals, cells)."""
    edge = np.arange(cells + 1) / cells
    low, high = np.asarray(starts)[:, None], np.asarray(starts)[:, None] + width
    covered: Floats = np.clip(np.minimum(high, edge[1:]) - np.maximum(low, edge[:-1]), 0, None) * cells
    return covered
