"""What the kernels of a GPU do, box by box in torch: the reference of their tests, and their stand-in on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from mltta.accelerate.boxes import BITS, Boxes
from mltta.images.geometry import Axis


def launch(
    source: Tensor, boxes: Boxes, out: Tensor, table: Tensor, cubic: bool = False, channels_last: bool = True
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
