"""Geometry of views: pure arithmetic, independent of the renderer.

Random numbers are passed as an array with one row per view, in the order in which its generator draws them.
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

#: maximum random numbers per crop: two per try, two for its position and one for its flip
TRIES = 10
CROP_DRAWS = 2 * TRIES + 3
#: minimum short side of a reduced photo, and maximum reduction
LEAST_SIDE, MOST_REDUCED = 750, 8


class Axis(NamedTuple):
    """Resampling along one axis: a source interval, its new size, the first pixel to keep, and the flip.

    Pixels outside the new size are black.
    """

    start: int
    length: int
    size: int
    first: int = 0
    flip: int = 0


def scale_of(size: tuple[int, int]) -> int:
    """Return the factor by which a photo of this width and height is reduced before rendering views: 1, 2, 4 or 8.

    It depends only on the size, so it is the same for every method, model, batch and worker. Enough pixels remain: a
    crop of 8% of 1000 x 750 pixels has 245 per side for a model input of 224. A phone photo of 12 megapixels is reduced
    to a quarter of its sides, which costs a third less than half.

    Example:
        >>> [scale_of(size) for size in ((1499, 9000), (3264, 2448), (4000, 3000), (8160, 6120))]
        [1, 2, 4, 8]
    """
    scale = 1
    while scale < MOST_REDUCED and -(-min(size) // scale) >= 2 * LEAST_SIDE:  # sides are rounded up
        scale *= 2
    return scale


def clean_axes(size: tuple[int, int], preprocess: Preprocess) -> tuple[Axis, Axis]:
    """Return the resampling of the clean view along x and y for an image size, as in open_clip."""
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
    """Return the size of the copy that crops are cut from, with a short side of at most ``most``."""
    short = min(size)
    if most is None or short <= most:
        return size
    width, height = (round(side * most / short) for side in size)
    return width, height


def crop_boxes(
    numbers: Floats, sizes: Ints, scale: tuple[float, float], ratio: tuple[float, float], flip: float
) -> tuple[Ints, Ints]:
    """Draw random-resized crops as torchvision does: left, top, width, height, flip (V, 5), and rows that never fit.

    Args:
        numbers: (V, draws) in [0, 1); with CROP_DRAWS numbers, every crop fits.
        sizes: (V, 2) width and height of the image of each crop.
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
        # numpy's exp may differ from Python's in the last bit.
        aspect = np.array([math.exp(low + (high - low) * draw) for draw in aspect_draw.tolist()])
        w, h = (np.rint(np.sqrt(side)).astype(np.int64) for side in (area * aspect, area / aspect))
        fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
        top = (top_draw * (height - h + 1)).astype(np.int64)
        left = (left_draw * (width - w + 1)).astype(np.int64)
        crops[left_over[fits]] = np.stack([left, top, w, h, flip_draw < flip], 1)[fits]
        left_over = left_over[~fits]
    if numbers.shape[1] == CROP_DRAWS:  # all tries failed: the largest central crop
        width, height = sizes[left_over].T
        w = np.minimum(width, np.maximum(1, np.rint(height * ratio[1]))).astype(np.int64)
        h = np.minimum(height, np.maximum(1, np.rint(width / ratio[0]))).astype(np.int64)
        last = numbers[left_over, 2 * TRIES] < flip
        crops[left_over] = np.stack([(width - w) // 2, (height - h) // 2, w, h, last], 1)
        left_over = left_over[:0]
    return crops, left_over


def cover(starts: Sequence[float], width: float, cells: int) -> Floats:
    """Return the covered share of each of ``cells`` equal cells of [0, 1], (intervals, cells)."""
    edge = np.arange(cells + 1) / cells
    low, high = np.asarray(starts)[:, None], np.asarray(starts)[:, None] + width
    covered: Floats = np.clip(np.minimum(high, edge[1:]) - np.maximum(low, edge[:-1]), 0, None) * cells
    return covered
