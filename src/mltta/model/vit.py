"""Parts of a ViT image tower, run separately by MaPLe, DART, TagCLIP and local views."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from open_clip.transformer import ResidualAttentionBlock, VisionTransformer
from torch import Tensor, nn


def patch_tokens(visual: Any, pixels: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Class token and patches (N, 1 + h w, W) of images with positions added, before the first norm; and (h, w)."""
    patches = visual.conv1(pixels)
    grid = (patches.shape[2], patches.shape[3])
    x = patches.flatten(2).transpose(1, 2)
    first = visual.class_embedding.to(x.dtype).expand(len(x), 1, -1)
    held = visual.positional_embedding
    at = torch.cat([held[:1], positions(held[1:], visual.grid_size, grid)])
    return torch.cat([first, x], dim=1) + at.to(x.dtype), grid


def positions(held: Tensor, was: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Positions (h w, W) for another grid, interpolated as in open_clip."""
    if tuple(was) == grid:
        return held
    cells = held.float().reshape(1, was[0], was[1], -1).permute(0, 3, 1, 2)
    cells = F.interpolate(cells, size=grid, mode="bicubic", antialias=True, align_corners=False)
    return cells.permute(0, 2, 3, 1).reshape(grid[0] * grid[1], -1)


def class_feature(visual: Any, x: Tensor) -> Tensor:
    """Unnormalized features (N, D) of the class token after the last block."""
    x = visual.ln_post(x[:, 0])
    return x if visual.proj is None else x @ visual.proj


def is_plain(visual: Any) -> bool:
    """Whether the tower is a supported ViT: plain blocks, pooled at its class token."""
    if not isinstance(visual, VisionTransformer):
        return False
    return visual.attn_pool is None and visual.pool_type == "tok" and plain_blocks(visual)


def plain_blocks(visual: VisionTransformer) -> bool:
    """Whether a ViT's blocks are standard."""
    return all(
        type(block) is ResidualAttentionBlock
        and isinstance(block.attn, nn.MultiheadAttention)
        and block.attn.batch_first
        for block in visual.transformer.resblocks
    )
