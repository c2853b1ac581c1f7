"""AugMix on a device: the same mixes as `mltta.images.augmix`, from the same random numbers, for all views at once.

At each depth of the chains there are two kinds of operations, each run as one batch: lookup tables
(autocontrast, equalize, posterize, solarize) and affine maps (rotate, shear, translate).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mltta.accelerate.boxes import upload
from mltta.images.augmix import CHAINS, LONGEST_CHAIN, OPERATIONS, Plans
from mltta.images.geometry import Floats, Ints

_NAMES = tuple(OPERATIONS)
_LOOKUPS = ("autocontrast", "equalize", "posterize", "solarize")
_MOVES = tuple(name for name in _NAMES if name not in _LOOKUPS)
# Pillow truncates; float32 may be slightly below an integer level that Pillow reaches.
_HAIR = 1 / 512


class _Steps(NamedTuple):
    """Operations of one kind at one depth: indices of chains (view * CHAINS + chain), and their parameters."""

    row: Ints
    level: Floats
    sign: Ints

    def whole(self, maximum: float) -> Ints:
        """Convert levels of at most 10 to integers of at most `maximum`."""
        return (self.level * maximum / 10).astype(np.int64)


def mix_views(views: Tensor, plans: Plans) -> Tensor:
    """Mix every view (V, 3, S, S), uint8, with its chains; returns fractional levels in [0, 255], float32."""
    chains = views[:, None].repeat(1, CHAINS, 1, 1, 1).flatten(0, 1)  # (V * CHAINS, 3, S, S)
    for depth in range(LONGEST_CHAIN):
        operation = plans.operation[:, :, depth].ravel()
        level, sign = plans.level[:, :, depth].ravel(), plans.sign[:, :, depth].ravel()
        steps = {}
        for code, name in enumerate(_NAMES):
            rows = np.flatnonzero(operation == code)
            steps[name] = _Steps(rows, level[rows], sign[rows])
        _apply_lookups(chains, steps)
        _apply_moves(chains, steps)
    shares = upload(plans.shares.astype(np.float32), views.device)[..., None, None, None]
    mixed = views.contiguous() * shares[:, 0]
    for j in range(CHAINS):
        mixed.addcmul_(chains[j::CHAINS], shares[:, 1 + j])
    return mixed


def _apply_lookups(chains: Tensor, steps: dict[str, _Steps]) -> None:
    """Apply operations on single pixels, given the histogram of their channel, in place."""
    rows = np.concatenate([steps[name].row for name in _LOOKUPS])
    if not len(rows):
        return
    masks, thresholds = -(1 << 4 + steps["posterize"].whole(4)), 256 - steps["solarize"].whole(256)
    rows_at, masks_at, thresholds_at = (upload(part, chains.device) for part in (rows, masks, thresholds))
    pixels = chains.index_select(0, rows_at)
    index = pixels.flatten(2).flatten(0, 1).long()  # (n * 3, S * S)
    stretched, equalized = (3 * len(steps[name].row) for name in _LOOKUPS[:2])
    seen = index[: stretched + equalized]
    histogram = torch.zeros(len(seen), 256, dtype=torch.int32, device=chains.device)
    histogram.scatter_add_(1, seen, histogram.new_ones(()).expand_as(seen))
    levels = torch.arange(256, device=chains.device)
    highest = torch.where(histogram > 0, levels, 0).amax(1)
    lowest = torch.where(histogram > 0, levels, 255).amin(1)
    fixed = [levels & masks_at[:, None], torch.where(levels < thresholds_at[:, None], levels, 255 - levels)]
    tables = [
        _stretching(chains.device)[lowest[:stretched], highest[:stretched]],
        _equalizing(histogram[stretched:], highest[stretched:]),
        torch.cat(fixed)[:, None].repeat(1, 3, 1).flatten(0, 1).to(torch.uint8),
    ]
    chains.index_copy_(0, rows_at, torch.cat(tables).gather(1, index).view_as(pixels))


@lru_cache(maxsize=8)
def _stretching(device: torch.device) -> Tensor:
    """Tabulate autocontrast (lowest, highest, level), with Pillow's order of float64 operations."""
    level = np.arange(256)
    table = np.empty((256, 256, 256), np.uint8)
    table[:] = level
    for lowest in range(255):
        scale = 255.0 / (level[lowest + 1 :, None] - lowest)
        table[lowest, lowest + 1 :] = np.clip(level * scale + -lowest * scale, 0, 255)
    return torch.from_numpy(table).to(device)


def _equalizing(histogram: Tensor, highest: Tensor) -> Tensor:
    """Compute the tables (n, 256) of Pillow's equalize, in integers."""
    below = histogram.cumsum(1, dtype=torch.int32) - histogram
    last = histogram.gather(1, highest[:, None])
    step = (histogram.sum(1, keepdim=True, dtype=torch.int32) - last) // 255
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    levels = torch.arange(256, device=histogram.device, dtype=torch.int32)
    return torch.where(step > 0, table, levels).to(torch.uint8)


def _apply_moves(chains: Tensor, steps: dict[str, _Steps]) -> None:
    """Apply operations that move pixels, bilinearly, in place; the outside is black."""
    rows = np.concatenate([steps[name].row for name in _MOVES])
    if not len(rows):
        return
    size = chains.shape[-1]
    matrices = np.concatenate([_matrices(name, steps[name], size) for name in _MOVES])
    # Convert pixel coordinates, with centres at 0.5, to grid_sample's range of -1 to 1.
    matrices[:, :, 2] = matrices[:, :, 0] + matrices[:, :, 1] - 1 + matrices[:, :, 2] * (2 / size)
    rows_at = upload(rows, chains.device)
    a, b, c = upload(matrices.astype(np.float32), chains.device)[:, None, None].unbind(-1)  # (n, 1, 1, 2)
    line = (torch.arange(size, device=chains.device) * 2 + 1) / size - 1
    grid = a * line[None, None, :, None] + (b * line[None, :, None, None] + c)  # (n, S, S, 2)
    inside = torch.maximum(*grid.abs().unbind(-1)) < 1
    pixels = chains.index_select(0, rows_at).float()
    sampled = F.grid_sample(pixels, grid, "bilinear", "border", align_corners=False)
    chains.index_copy_(0, rows_at, sampled.add_(_HAIR).mul_(inside[:, None]).to(torch.uint8))


def _matrices(name: str, steps: _Steps, size: int) -> NDArray[np.float64]:
    """Maps (n, 2, 3) from output to input pixels, as in `mltta.images.augmix`."""
    matrices = np.zeros((len(steps.row), 2, 3))
    matrices[:, [0, 1], [0, 1]] = 1
    axis = 0 if name.endswith("x") else 1
    if name == "rotate":
        angle = -np.radians(steps.sign * steps.whole(30))
        matrices[:, 0, 0] = matrices[:, 1, 1] = np.cos(angle)
        matrices[:, 0, 1] = np.sin(angle)
        matrices[:, 1, 0] = -np.sin(angle)
        matrices[:, :, 2] = size / 2 * (1 - matrices[:, :, 0] - matrices[:, :, 1])
    elif name.startswith("shear"):
        matrices[:, axis, 1 - axis] = steps.sign * steps.level * 0.3 / 10
    else:
        matrices[:, axis, 2] = steps.sign * steps.whole(size / 3)
    return matrices
