"""Pieces of a ViT image tower, run one by one by those that reach into it: MaPLe, DART, local views."""

from __future__ import annotations

from typing import Any

import torch
from open_clip.transformer import ResidualAttentionBlock, VisionTransformer
from torch import Tensor, nn


def patch_tokens(visual: Any, pixels: Tensor) -> Tensor:
    """Class token and patches (N, L, W) of images, with their positions, before the first norm."""
    patches = visual.conv1(pixels).flatten(2).transpose(1, 2)  # (N, L - 1, W)
    first = visual.class_embedding.to(patches.dtype).expand(len(pixels), 1, -1)
    positions: Tensor = visual.positional_embedding.to(patches.dtype)
    return torch.cat([first, patches], dim=1) + positions


def class_feature(visual: Any, x: Tensor) -> Tensor:
    """Features (N, D), not of unit length, read off the class token behind the last block."""
    x = visual.ln_post(x[:, 0])
    return x if visual.proj is None else x @ visual.proj


def is_plain(visual: Any) -> bool:
    """Whether the tower is the ViT that is run here: plain blocks, pooled at its class token."""
    return (
        isinstance(visual, VisionTransformer)
        and visual.attn_pool is None
        and visual.pool_type == "tok"
        and plain_blocks(visual)
    )


def plain_blocks(visual: VisionTransformer) -> bool:
    """Whether a ViT's blocks are of the usual kind."""
    return all(
        type(block) is ResidualAttentionBlock
        and isinstance(block.attn, nn.MultiheadAttention)
        and block.attn.batch_first
        for block in visual.transformer.resblocks
    )
