"""Images composed of several others, so that the location of every object is known."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def mosaic(parts: Tensor, rows: int, columns: int, size: int) -> Tensor:
    """Compose images (n, 3, size, size) of rows x columns images each, squeezed to fit.

    Args:
        parts: (n * rows * columns, 3, p, p); the parts of an image are adjacent, row by row.
    """
    h, w = size // rows, size // columns
    small = F.interpolate(parts, (h, w), mode="bilinear", antialias=True, align_corners=False)
    grid = small.reshape(-1, rows, columns, parts.shape[1], h, w).permute(0, 3, 1, 4, 2, 5)
    whole = grid.reshape(len(grid), parts.shape[1], rows * h, columns * w)
    return whole.contiguous(memory_format=torch.channels_last)


def cut(maps: Tensor, rows: int, columns: int) -> Tensor:
    """The maps (n * rows * columns, D, H / rows, W / columns) of the parts of composed images."""
    n, d, height, width = maps.shape
    if height % rows or width % columns:
        raise ValueError(f"a map of {height} x {width} locations cannot be cut into {rows} x {columns} parts")
    grid = maps.reshape(n, d, rows, height // rows, columns, width // columns).permute(0, 2, 4, 1, 3, 5)
    return grid.reshape(n * rows * columns, d, height // rows, width // columns)
