"""Pillow's `resize` for many boxes of many images at once, in Pillow's own whole-number arithmetic: the same bits.

Pillow turns a filter's weights into whole numbers of 22 bits, resamples along one axis, rounds to levels, and
resamples along the other. On a GPU that is three kernels for all boxes together; elsewhere torch does it box by box.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor

from mltta.images.geometry import Axis, Ints

log = logging.getLogger("mltta")
#: bits behind the point of a weight
BITS = 22
# Boxes at once: a GPU's limit on the second side of its grid.
MOST = 65_535
_PILLOW_13 = int(PIL.__version__.split(".")[0]) >= 13


@dataclass(frozen=True)
class Boxes:
    """V boxes to resample, and where they lie."""

    offset: Ints  # (V,) of its image, in bytes, in a tensor of all images' pixels, each (H, W, 3)
    width: Ints  # (V,) of its image
    axes: Ints  # (V, 2, 5) along x and along y, lines of `Axis`
    kept: Ints  # (V, 2) how many pixels are kept along x and along y
    place: Ints  # (V,) of its first pixel in the output
    stride: Ints  # (V,) from one line of the output to the next

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, part: slice) -> Boxes:
        fields = self.offset, self.width, self.axes, self.kept, self.place, self.stride
        return Boxes(*(field[part] for field in fields))

    @property
    def along_y(self) -> NDArray[np.bool_]:
        """Which ones Pillow resamples along y first: it rounds in between, so that shows."""
        (width, height), (new_width, new_height) = self.axes[:, :, 1].T, self.axes[:, :, 2].T
        tall = height - new_height > 2 * (width - new_width) if _PILLOW_13 else height > 100 * width
        along_y: NDArray[np.bool_] = tall & (height > new_height)
        return along_y

    @property
    def between(self) -> Ints:
        """Bytes of each after its first pass, (V,)."""
        length, kept = self.axes[:, :, 1], self.kept
        return 3 * np.where(self.along_y, kept[:, 1] * length[:, 0], kept[:, 0] * length[:, 1])

    def taps(self, cubic: bool) -> int:
        """The most pixels that one new pixel is mixed from."""
        reach = np.maximum(1, self.axes[:, :, 1] / self.axes[:, :, 2]).max()
        return 2 * int(np.ceil(reach * (2 if cubic else 1))) + 1

    def chunks(self, max_bytes: int) -> Iterator[Boxes]:
        """Divide them so that what is kept between the passes fits into memory, at least one at a time."""
        ends = np.cumsum(self.between)
        start = 0
        while start < len(self):
            before = ends[start - 1] if start else 0
            end = max(start + 1, int(np.searchsorted(ends, before + max_bytes, side="right")))
            end = min(end, start + MOST)
            yield self[start:end]
            start = end


def resample(
    source: Tensor,
    boxes: Boxes,
    out: Tensor,
    table: Tensor,
    *,
    cubic: bool,
    channels_last: bool = True,
    max_bytes: int = 1 << 30,
) -> None:
    """Resample boxes of images into their places of the output.

    Args:
        source: all pixels of the images, uint8, flat.
        out: any tensor in which the boxes have their places, contiguous.
        table: (3, 256) what is written for each level of each channel, of the output's kind.
        channels_last: a box lies there as (H, W, 3); otherwise as (3, H, W), with kept lines only.
        max_bytes: kept between the passes.
    """
    on_gpu = source.is_cuda and kernels_work(source.device)
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


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy to the device without waiting for what it is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
