"""Pillow's `resize` as matrix products, for many boxes of many images at once.

Pillow resamples along one axis, rounds to whole levels, and resamples along the other. Both steps are linear:
`round(Wy · round(image · Wxᵀ))`, with the box, the filter and the flip in the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor

from mltta.device_draws import Ints

_PILLOW_13 = int(PIL.__version__.split(".")[0]) >= 13
# Half a level and a hair: float32 falls short of a tie or not by the order of its sums, which may change.
_HALF = 0.5 + 2.0**-14
_UNIT = 1 << 30


class Axis(NamedTuple):
    """Resampling along one axis: a box, the size it gets, the first pixel of that which is kept, and its flip.

    Pixels may be kept from beyond the new size: they are black.
    """

    start: int
    length: int
    size: int
    first: int = 0
    flip: int = 0


def begins_along_y(x: Ints, y: Ints) -> NDArray[np.bool_]:
    """Tell which boxes, lines of `Axis`, Pillow resamples along y first: it rounds in between, so that shows."""
    (width, new_width), (height, new_height) = x[:, 1:3].T, y[:, 1:3].T
    tall = height - new_height > 2 * (width - new_width) if _PILLOW_13 else height > 100 * width
    along_y: NDArray[np.bool_] = tall & (height > new_height)
    return along_y


def resample(
    groups: Sequence[Tensor], boxes: Ints, owners: Ints, width: int, height: int, interpolation: str
) -> tuple[Tensor, Ints]:
    """Resample V boxes of images.

    Args:
        groups: equally large images together, (B, 3, H, W), all float16 or all float32.
        boxes: how each box is resampled along x and along y, lines of `Axis`, (V, 2, 5).
        owners: which image each box is of, counted through all groups, (V,).

    Returns:
        whole levels of shape (V, height, width, 3), in an order of their own, and the number of the box of each.
    """
    starts = np.cumsum([0, *map(len, groups)])
    along_y = begins_along_y(boxes[:, 0], boxes[:, 1])
    of_group = np.searchsorted(starts, owners, side="right") - 1
    order = np.lexsort((owners, along_y, of_group))
    sides = np.array([group.shape[:1:-1] for group in groups], np.int64)[of_group]
    lines = np.concatenate([boxes, sides[:, :, None]], 2)[order]
    device, cubic = groups[0].device, interpolation == "bicubic"
    x, y = upload(lines, device).unbind(1)
    x_reach, y_reach = np.maximum(1, boxes[:, :, 1] / boxes[:, :, 2]).max(0)
    x_taps, y_taps = _taps(x, width, x_reach, cubic), _taps(y, height, y_reach, cubic)
    levels = groups[0].new_empty(len(boxes), height, width, 3)
    kinds = (2 * of_group + along_y)[order]
    for kind in np.unique(kinds).tolist():
        images, start = groups[kind // 2], starts[kind // 2]
        low, high = np.searchsorted(kinds, [kind, kind + 1]).tolist()
        counts = np.bincount(owners[order[low:high]] - start, minlength=len(images)).tolist()
        x_weights, y_weights = (
            _weights(tap[low:high], weights[low:high], side, images.dtype)
            for (tap, weights), side in zip((x_taps, y_taps), images.shape[:1:-1], strict=True)
        )
        part = levels[low:high]
        if kind % 2:
            images = images.transpose(2, 3).contiguous()
            between = _first_pass(images, y_weights, counts, cubic)
            part.copy_(torch.bmm(x_weights, between.mT).view(-1, width, height, 3).transpose(1, 2))
        else:
            between = _first_pass(images, x_weights, counts, cubic)
            torch.bmm(y_weights, between.mT, out=part.view(-1, height, width * 3))
    levels.add_(_HALF).floor_()
    return levels.clamp_(0, 255) if cubic else levels, order


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy to the device without waiting for what it is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _taps(lines: Tensor, count: int, reach: float, cubic: bool) -> tuple[Tensor, Tensor]:
    """Find the pixels that each of `count` new pixels is mixed from, and their weights, both (V, count, taps).

    Args:
        lines: of `Axis`, with the side of the image at their ends, (V, 6).
        reach: the largest ratio of a length to its new size, or 1.
    """
    start, length, size, first, flip, side = lines[:, :, None].unbind(1)  # (V, 1)
    taps = 2 * math.ceil(reach * (2 if cubic else 1)) + 1
    pixel = torch.arange(count, device=lines.device)
    pixel = torch.where(flip > 0, count - 1 - pixel, pixel) + first  # (V, count)
    centre = (2 * pixel + 1) * length  # in the box, times 2 * size: whole numbers are exact at any length
    tap = torch.minimum(start + centre // (2 * size) - taps // 2, side - taps).clamp_(min=0)[..., None]
    tap = tap + torch.arange(taps, device=lines.device)
    start, length, size, pixel = start[..., None], length[..., None], size[..., None], pixel[..., None]
    distance = ((2 * (tap - start) + 1) * size - centre[..., None]).abs_().float()
    distance = distance / (2 * torch.maximum(length, size))
    weights = _bicubic(distance) if cubic else 1 - distance
    if not cubic:
        weights.clamp_(min=0)
    weights.mul_((tap >= start) & (tap < start + length) & (pixel >= 0) & (pixel < size))
    # Whole numbers have one sum in any order: the weights of a view must not change with its batch.
    total = (weights * _UNIT).long().sum(2, keepdim=True).clamp_(min=1)
    return tap, weights.mul_(_UNIT / total)


def _bicubic(distance: Tensor) -> Tensor:
    """Pillow's cubic filter, with a = -0.5."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((distance - 5) * distance + 8) * distance * -0.5 + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0))


def _weights(tap: Tensor, weights: Tensor, side: int, dtype: torch.dtype) -> Tensor:
    """Spread weights over all pixels of a side, (V, count, side)."""
    views, count, taps = tap.shape
    dense = torch.zeros(views, count, max(side, taps), dtype=dtype, device=tap.device)
    return dense.scatter_(2, tap, weights.to(dtype))[..., :side]


def _first_pass(images: Tensor, weights: Tensor, counts: list[int], cubic: bool) -> Tensor:
    """Resample images (B, 3, L, K) along K by weights (V, X, K) to whole levels (V, X * 3, L).

    Args:
        counts: how many of the V boxes belong to each image, in order.
    """
    (boxes, count, _), length = weights.shape, images.shape[2]
    between = weights.new_empty(boxes, count, 3 * length)
    half = weights.new_full((3 * length,), _HALF)
    parts = zip(images.flatten(1, 2), torch.split(weights, counts), torch.split(between, counts), strict=True)
    for image, own, part in parts:
        # All boxes of an image share one product.
        torch.addmm(half, own.flatten(0, 1), image.T, out=part.flatten(0, 1))
    between.floor_()
    if cubic:
        between.clamp_(0, 255)
    return between.view(boxes, count * 3, length)
