"""Regions of a map: which cells stand out, and the boxes of those that hang together."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def scaled(maps: Tensor) -> Tensor:
    """Maps (K, h, w), each from its least value, 0, to its greatest, 1; a flat one is 0."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp(min=1e-30)


def above_mean(maps: Tensor) -> Tensor:
    """The cells (K, h, w) above the mean of their own map; all cells of a flat one."""
    values = scaled(maps)
    cells = values > values.mean(dim=(1, 2), keepdim=True)
    return cells | ~cells.any(dim=2, keepdim=True).any(dim=1, keepdim=True)


def boxes_of(cells: Tensor) -> Tensor:
    """The cells (K, h, w) inside the boxes around each part of a map that hangs together, corners touching too."""
    _, h, w = cells.shape
    y, x = torch.arange(h, device=cells.device), torch.arange(w, device=cells.device)
    y, x = y[:, None].expand(h, w), x[None].expand(h, w)
    # each cell learns the ends of its part from its neighbours, until nobody learns more
    ends = torch.stack([-y, y, -x, x]).float()  # (4, h, w)
    none = -float(h + w)
    held = torch.where(cells[:, None], ends, none)  # (K, 4, h, w)
    while True:
        grown = torch.where(cells[:, None], F.max_pool2d(held, 3, stride=1, padding=1), none)
        if torch.equal(grown, held):
            break
        held = grown
    which, *_ = cells.nonzero(as_tuple=True)
    top, bottom, left, right = held.permute(1, 0, 2, 3)[:, cells].long()
    top, left = -top, -left
    # a box is +1 at its corner and -1 beyond its ends, added up along both axes
    edges = torch.zeros(len(cells), h + 1, w + 1, device=cells.device)
    one = torch.ones(len(which), device=cells.device)
    for row, column, sign in (
        (top, left, 1.0),
        (bottom + 1, left, -1.0),
        (top, right + 1, -1.0),
        (bottom + 1, right + 1, 1.0),
    ):
        edges.index_put_((which, row, column), sign * one, accumulate=True)
    return edges.cumsum(dim=1).cumsum(dim=2)[:, :h, :w] > 0.5


def ends_of(cells: Tensor) -> tuple[int, int, int, int]:
    """First and last row, first and last column, of the cells (h, w) of one map, of which there is at least one."""
    rows, columns = cells.any(dim=1).nonzero(), cells.any(dim=0).nonzero()
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
