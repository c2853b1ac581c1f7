"""Images in memory as bytes, and random crops computed on the device."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F


def decode(path: Path, index: Sequence[tuple[str, int, int]], side: int) -> Tensor:
    """Decode all images of a file, squashed to (n, 3, side, side) bytes."""
    data = path.read_bytes()
    return decoded([data[start : start + size] for _, start, size in index], side)


def decoded(images: Sequence[bytes], side: int) -> Tensor:
    """Decode images, squashed to (n, 3, side, side) bytes."""
    out = torch.empty(len(images), 3, side, side, dtype=torch.uint8)

    def one(row: int) -> None:
        image = Image.open(io.BytesIO(images[row])).convert("RGB")
        pixels = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC))
        out[row] = torch.from_numpy(pixels.copy()).permute(2, 0, 1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(len(images))))
    return out


def even_parts(n: int, most: int, device: torch.device) -> tuple[Tensor, ...]:
    """Split rows 0 to n into parts of equal length; the last wraps around to 0.

    A GPU library needs seconds to select kernels for each new batch size.
    """
    each = max(1, min(most, n))
    rows = torch.arange(-(-n // each) * each, device=device) % max(1, n)
    return torch.split(rows, each)


def squashed(images: Tensor, size: int) -> Tensor:
    """Whole images (n, 3, s, s) of bytes, resized to [-1, 1] as at test time."""
    x = F.interpolate(images.float(), (size, size), mode="bicubic", antialias=True, align_corners=False)
    return (x.clamp(0, 255) / 127.5 - 1).contiguous(memory_format=torch.channels_last)


def crops(
    images: Tensor, size: int, smallest: float, whole: float, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random resized crops with flips and light colour changes of (n, 3, s, s) bytes.

    Args:
        smallest: minimum fraction of the area that a crop covers.
        whole: probability of using the whole image, as at test time.

    Returns:
        The crops in [-1, 1], and their locations (n, 2, 3) for `affine_grid`.
    """
    n, device = len(images), images.device

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(n, generator=rng, device=device) * (high - low) + low

    area, ratio = uniform(smallest, 1.0), torch.exp(uniform(-0.29, 0.29))
    full = uniform(0.0, 1.0) < whole
    w = torch.where(full, 1.0, (area * ratio).sqrt().clamp(max=1.0))
    h = torch.where(full, 1.0, (area / ratio).sqrt().clamp(max=1.0))
    cx, cy = uniform(-1.0, 1.0) * (1 - w), uniform(-1.0, 1.0) * (1 - h)
    flip = torch.where(uniform(0.0, 1.0) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(w)
    boxes = torch.stack([torch.stack([w * flip, zero, cx], -1), torch.stack([zero, h, cy], -1)], 1)
    grid = F.affine_grid(boxes, [n, 3, size, size], align_corners=False)
    # upscaled as at test time, with PIL's bicubic
    mode = "bicubic" if size > images.shape[-1] else "bilinear"
    x = F.grid_sample(images.float() / 255, grid, mode, padding_mode="reflection", align_corners=False)
    x = x.clamp(0, 1)
    grey = x.mean(1, keepdim=True)
    saturation = torch.where(uniform(0.0, 1.0) < 0.05, 0.0, uniform(0.7, 1.3))[:, None, None, None]
    x = grey + (x - grey) * saturation
    middle = x.mean((1, 2, 3), keepdim=True)
    brightness, contrast = (uniform(0.8, 1.2)[:, None, None, None] for _ in range(2))
    x = middle * brightness + (x - middle) * contrast
    return (x.clamp(0, 1) * 2 - 1).contiguous(memory_format=torch.channels_last), boxes
