"""Pillow's `resize` for many boxes of many images at once on a GPU, bit-exact, in its integer arithmetic.

Pillow converts a filter's weights to 22-bit integers, resamples along one axis, rounds, and resamples along the
other: three kernels for all boxes together.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from mltta.accelerate.boxes import BITS, Boxes, upload

# Numbers per box: offset, width, 2 x (Axis, kept), whether y comes first, between, place, stride.
_LINE = tl.constexpr(18)
_BITS, _ONE, _HALF = tl.constexpr(BITS), tl.constexpr(1 << BITS), tl.constexpr(1 << (BITS - 1))
_WEIGHTS_AT_ONCE, _AT_ONCE = tl.constexpr(128), tl.constexpr(256)


def launch(
    source: Tensor, boxes: Boxes, out: Tensor, table: Tensor, cubic: bool = False, channels_last: bool = True
) -> None:
    """Resample boxes of images into their places in the output.

    Args:
        source: all pixels of the images, uint8, flat.
        out: contiguous tensor that contains the places of the boxes.
        table: (3, 256) output value for each level of each channel, with the output's dtype.
        channels_last: write boxes as (H, W, 3); otherwise as (3, H, W), with kept rows only.
    """
    ends = np.cumsum(boxes.between)
    parts = [
        boxes.offset[:, None],
        boxes.width[:, None],
        np.concatenate([boxes.axes, boxes.kept[:, :, None]], 2).reshape(len(boxes), 12),
        boxes.along_y[:, None],
        (ends - boxes.between)[:, None],
        boxes.place[:, None],
        boxes.stride[:, None],
    ]
    lines = upload(np.concatenate(parts, 1).astype(np.int64), source.device)
    side, taps, count = int(boxes.kept.max()), boxes.taps(cubic), len(boxes)
    low = torch.empty(count, 2, side, dtype=torch.int32, device=source.device)
    weights = torch.empty(count, 2, taps, side, dtype=torch.int32, device=source.device)
    between = torch.empty(int(ends[-1]), dtype=torch.uint8, device=source.device)
    rows = int(np.where(boxes.along_y, boxes.kept[:, 1], boxes.axes[:, 1, 1]).max())
    with torch.cuda.device(source.device) if source.is_cuda else torch.no_grad():
        _weigh[(count, 2, triton.cdiv(side, _WEIGHTS_AT_ONCE.value))](
            lines, low, weights, side, taps, cubic, enable_fp_fusion=False
        )
        _first_pass[(rows, count)](source, lines, low, weights, between, side, taps, cubic)
        _second_pass[(int(boxes.kept[:, 1].max()), count)](
            between, lines, low, weights, table, out, side, taps, cubic, channels_last
        )


@triton.jit
def _weigh(lines, lows, weights, side, TAPS: tl.constexpr, CUBIC: tl.constexpr):
    """Weights of one axis of one box, computed as in Pillow."""
    box, axis = tl.program_id(0), tl.program_id(1)
    line = lines + box * _LINE + 2 + axis * 6
    length, size, first = tl.load(line + 1), tl.load(line + 2), tl.load(line + 3)
    flip, count = tl.load(line + 4), tl.load(line + 5)
    place = tl.program_id(2) * _WEIGHTS_AT_ONCE + tl.arange(0, _WEIGHTS_AT_ONCE)
    pixel = tl.where(flip > 0, count - 1 - place, place) + first
    scale = length.to(tl.float64) / size.to(tl.float64)
    widened = tl.maximum(scale, 1.0)
    reach = widened * 2 if CUBIC else widened
    centre = (pixel.to(tl.float64) + 0.5) * scale
    low = tl.maximum((centre - reach + 0.5).to(tl.int64), 0)
    high = tl.minimum((centre + reach + 0.5).to(tl.int64), length)
    high = tl.where((pixel >= 0) & (pixel < size), high, low)
    total = tl.zeros([_WEIGHTS_AT_ONCE], tl.float64)
    narrowed = 1.0 / widened
    for tap in range(TAPS):
        total += _weight(low + tap, high, centre, narrowed, CUBIC)
    total = tl.where(total == 0, 1.0, total)
    kept = place < count
    row = box * 2 + axis
    tl.store(lows + row * side + place, low.to(tl.int32), mask=kept)
    for tap in range(TAPS):
        weight = _weight(low + tap, high, centre, narrowed, CUBIC) / total * _ONE
        whole = tl.where(weight < 0, weight - 0.5, weight + 0.5).to(tl.int32)
        tl.store(weights + (row * TAPS + tap) * side + place, whole, mask=kept)


@triton.jit
def _weight(tap, high, centre, narrowed, CUBIC: tl.constexpr):
    distance = tl.abs((tap.to(tl.float64) - centre + 0.5) * narrowed)
    if CUBIC:
        near = (1.5 * distance - 2.5) * distance * distance + 1
        far = (((distance - 5) * distance + 8) * distance - 4) * -0.5
        weight = tl.where(distance < 1, near, tl.where(distance < 2, far, 0.0))
    else:
        weight = tl.where(distance < 1, 1 - distance, 0.0)
    return tl.where(tap < high, weight, 0.0)


@triton.jit
def _taps(axis, CUBIC: tl.constexpr):
    """Maximum number of source pixels per output pixel, for one axis of one box."""
    reach = tl.maximum(tl.cdiv(tl.load(axis + 1), tl.load(axis + 2)), 1)
    return (reach * 2 if CUBIC else reach) * 2 + 1


@triton.jit
def _mixed(levels, step, weights, side, taps, here, last):
    """Integer levels of output pixels, each a weighted sum of pixels with a fixed step; none beyond the last."""
    total = tl.full([_AT_ONCE], _HALF, tl.int32)
    for tap in range(taps):
        share = tl.load(weights + tap * side, mask=here, other=0)
        level = tl.load(levels + tap * step, mask=here & (tap <= last), other=0)
        total += share * level.to(tl.int32)
    return tl.minimum(tl.maximum(total >> _BITS, 0), 255)


@triton.jit
def _first_pass(source, lines, lows, weights, between, side, taps, CUBIC: tl.constexpr):
    """One row of the intermediate result: along x of an image row, or along y over many."""
    row, box = tl.program_id(0), tl.program_id(1)
    line = lines + box * _LINE
    along_y = tl.load(line + 14) > 0
    x_start, x_length, x_kept = tl.load(line + 2), tl.load(line + 3), tl.load(line + 7)
    y_start, y_length, y_kept = tl.load(line + 8), tl.load(line + 9), tl.load(line + 13)
    if row < tl.where(along_y, y_kept, y_length):
        width = tl.load(line + 1)
        columns = (tl.where(along_y, x_length, x_kept) * 3).to(tl.int32)
        low_y = tl.load(lows + (box * 2 + 1) * side + tl.where(along_y, row, 0))
        image = source + tl.load(line) + ((y_start + tl.where(along_y, low_y, row)) * width + x_start) * 3
        out = between + tl.load(line + 15) + row * columns
        weight = weights + (box * 2 + along_y.to(tl.int32)) * taps * side
        last = tl.where(along_y, y_length - 1 - low_y, x_length - 1)
        own = tl.minimum(_taps(line + tl.where(along_y, 8, 2), CUBIC), taps)
        step = (tl.where(along_y, width, 1) * 3).to(tl.int32)
        for start in range(0, columns, _AT_ONCE):
            column = start + tl.arange(0, _AT_ONCE)
            here = column < columns
            pixel, channel = column // 3, column % 3
            of_x = column < tl.where(along_y, 0, columns)
            low = tl.load(lows + box * 2 * side + pixel, mask=of_x, other=0)
            at = tl.where(along_y, pixel, low) * 3 + channel
            number = tl.where(along_y, row, pixel)
            levels = _mixed(image + at, step, weight + number, side, own, here, last - low)
            tl.store(out + column, levels.to(tl.uint8), mask=here)


@triton.jit
def _second_pass(
    between, lines, lows, weights, table, out, side, taps, CUBIC: tl.constexpr, LAST: tl.constexpr
):
    """One row of a resampled box, mapped through the table."""
    row, box = tl.program_id(0), tl.program_id(1)
    line = lines + box * _LINE
    along_y = tl.load(line + 14) > 0  # y was the first pass, so this one runs along x
    x_length, x_kept = tl.load(line + 3), tl.load(line + 7)
    y_length, y_kept = tl.load(line + 9), tl.load(line + 13)
    if row < y_kept:
        low_y = tl.load(lows + (box * 2 + 1) * side + row)
        width = tl.where(along_y, x_length, x_kept) * 3
        image = between + tl.load(line + 15) + tl.where(along_y, row, low_y) * width
        stride = tl.load(line + 17)
        place = out + tl.load(line + 16) + row * stride
        weight = weights + (box * 2 + 1 - along_y.to(tl.int32)) * taps * side
        last = tl.where(along_y, x_length - 1, y_length - 1 - low_y)
        own = tl.minimum(_taps(line + tl.where(along_y, 2, 8), CUBIC), taps)
        step = tl.where(along_y, 3, width).to(tl.int32)
        columns = (x_kept * 3).to(tl.int32)
        for start in range(0, columns, _AT_ONCE):
            column = start + tl.arange(0, _AT_ONCE)
            here = column < columns
            pixel, channel = column // 3, column % 3
            of_x = column < tl.where(along_y, columns, 0)
            low = tl.load(lows + box * 2 * side + pixel, mask=of_x, other=0)
            at = tl.where(along_y, low, pixel) * 3 + channel
            number = tl.where(along_y, pixel, row)
            levels = _mixed(image + at, step, weight + number, side, own, here, last - low)
            value = tl.load(table + channel * 256 + levels, mask=here)
            to = pixel * 3 + channel if LAST else channel * stride * y_kept + pixel
            tl.store(place + to, value, mask=here)
