"""Pillow's `resize` for many boxes of many images at once, in Pillow's own whole-number arithmetic: the same bits.

Pillow turns a filter's weights into whole numbers of 22 bits, resamples along one axis, rounds to levels, and
resamples along the other. On a GPU that is three kernels for all boxes together; elsewhere torch does it box by box.
"""

from __future__ import annotations

import logging
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mltta.accelerate.boxes import BITS, Boxes
from mltta.images.geometry import Axis

log = logging.getLogger("mltta")


def resample(
    source: Tensor,
    boxes: Boxes,
    out: Tensor,
    table: Tensor,
    *,
    cubic: bool,
    channels_last: bool = True,
    max_bytes: int = 1 << 30,
    kernels: bool = True,
) -> None:
    """Resample boxes of images into their places of the output.

    Args:
        source: all pixels of the images, uint8, flat.
        out: any tensor in which the boxes have their places, contiguous.
        table: (3, 256) what is written for each level of each channel, of the output's kind.
        channels_last: a box lies there as (H, W, 3); otherwise as (3, H, W), with kept lines only.
        max_bytes: kept between the passes.
        kernels: use them where they work.
    """
    on_gpu = kernels and source.is_cuda and kernels_work(source.device)
    for part in boxes.chunks(max_bytes):
        if on_gpu:
            from mltta.accelerate.kernels import launch

            launch(source, part, out, table, cubic=cubic, channels_last=channels_last)
        else:
            resample_plainly(source, part, out, table, cubic=cubic, channels_last=channels_last)


@lru_cache(maxsize=16)
def kernels_work(device: torch.device) -> bool:
    """Whether Triton, which torch brings along on Linux, is here and can compile: tried with one pixel."""
    try:
        from mltta.accelerate.kernels import launch

        pixel = torch.zeros(3, dtype=torch.uint8, device=device)
        one, axes = np.ones(1, np.int64), np.array([[Axis(0, 1, 1), Axis(0, 1, 1)]])
        box = Boxes(0 * one, one, axes, np.ones((1, 2), np.int64), 0 * one, 3 * one)
        table = torch.zeros(3, 256, dtype=torch.uint8, device=device)
        launch(pixel, box, torch.empty_like(pixel), table, cubic=False, channels_last=True)
    except Exception as error:  # no Triton, no compiler, a GPU too old: many ways
        log.warning("views are made on the GPU without kernels, which is slower: %s", type(error).__name__)
        return False
    return True


def resample_plainly(
    source: Tensor, boxes: Boxes, out: Tensor, table: Tensor, *, cubic: bool, channels_last: bool = True
) -> None:
    """Do what the kernels do, box by box."""
    flat, device = out.view(-1), source.device
    columns = torch.arange(3, device=device)
    for v, along_y in enumerate(boxes.along_y.tolist()):
        (x, y), (width, height) = (Axis(*line) for line in boxes.axes[v].tolist()), boxes.kept[v].tolist()
        line = 3 * int(boxes.width[v])
        rows = source[int(boxes.offset[v]) :][y.start * line : (y.start + y.length) * line]
        pixels = rows.view(y.length, -1, 3)[:, x.start : x.start + x.length]
        along_x = weights(x, width, cubic, device)
        if along_y:
            pixels = _mix(pixels, *weights(y, height, cubic, device))
            levels = _mix(pixels.transpose(0, 1), *along_x).transpose(0, 1)
        else:
            pixels = _mix(pixels.transpose(0, 1), *along_x).transpose(0, 1)
            levels = _mix(pixels, *weights(y, height, cubic, device))
        shape, step = (height, width, 3), int(boxes.stride[v])
        strides = (step, 3, 1) if channels_last else (step, 1, step * height)
        flat.as_strided(shape, strides, int(boxes.place[v])).copy_(table[columns, levels.long()])


def weights(axis: Axis, count: int, cubic: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """The pixels that each of `count` new ones is mixed from, and their whole-number weights, both (taps, count)."""
    scale = axis.length / axis.size
    widened = max(1.0, scale)
    reach = widened * (2 if cubic else 1)
    pixel = torch.arange(count, dtype=torch.float64, device=device)
    pixel = (count - 1 - pixel if axis.flip else pixel) + axis.first
    centre = (pixel + 0.5) * scale
    low = (centre - reach + 0.5).long().clamp(min=0)
    high = (centre + reach + 0.5).long().clamp(max=axis.length)
    taps = low + torch.arange(int(reach * 2) + 2, device=device)[:, None]
    distance = ((taps - centre + 0.5) * (1 / widened)).abs()
    weight = _bicubic(distance) if cubic else (1 - distance).clamp(min=0)
    weight = weight * ((taps < high) & (pixel >= 0) & (pixel < axis.size))
    total = torch.zeros_like(centre)
    for row in weight:  # one after another, as Pillow sums them
        total = total + row
    weight = torch.where(total != 0, weight / total, weight) * (1 << BITS)
    return taps.clamp(max=axis.length - 1), (weight + torch.where(weight < 0, -0.5, 0.5)).long()


def _bicubic(distance: Tensor) -> Tensor:
    """Pillow's cubic filter, with a = -0.5."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = (((distance - 5) * distance + 8) * distance - 4) * -0.5
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0))


def _mix(pixels: Tensor, taps: Tensor, weight: Tensor) -> Tensor:
    """Resample pixels (L, K, 3) along L to whole levels (count, K, 3)."""
    total = torch.full((taps.shape[1], *pixels.shape[1:]), 1 << (BITS - 1), device=pixels.device)
    for tap, share in zip(taps, weight, strict=True):
        total += pixels[tap] * share[:, None, None]
    return (total >> BITS).clamp_(0, 255).to(torch.uint8)
