"""A ViT with average pooling as an ONNX graph for inputs of any size: its positions are interpolated in the graph."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from open_clip.transformer import VisionTransformer
from torch import Tensor, nn

from mltta.model.vit import plain_blocks, positions


def attend(attn: nn.MultiheadAttention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of sequences (N, L, W); torch's own is traced with the length of the example."""
    heads = [
        part.reshape(*part.shape[:2], attn.num_heads, -1).transpose(1, 2)
        for part in F.linear(x, attn.in_proj_weight, attn.in_proj_bias).chunk(3, dim=-1)
    ]
    query, key, value = heads  # (N, H, L, W / H)
    weight = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    weight = (weight if mask is None else weight + mask).softmax(-1)
    found: Tensor = attn.out_proj((weight @ value).transpose(1, 2).flatten(2))
    return found


def run_blocks(blocks: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The blocks of a transformer."""
    for block in blocks:
        x = x + block.ls_1(attend(block.attn, block.ln_1(x), mask))
        x = x + block.ls_2(block.mlp(block.ln_2(x)))
    return x


class _Positions(torch.autograd.Function):
    """Positions (1, W, h, w) for the grid of some patches (N, W, h, w): ONNX's cubic resize is open_clip's."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, patches: Tensor) -> Tensor:
        _, width, rows, columns = table.shape
        h, w = patches.shape[2:]
        held = table.permute(0, 2, 3, 1).reshape(rows * columns, width)
        return positions(held, (rows, columns), (h, w)).T.reshape(1, width, h, w)

    @staticmethod
    def symbolic(g: Any, table: Any, patches: Any) -> Any:
        def numbers(*values: int) -> Any:
            return g.op("Constant", value_t=torch.tensor(values))

        shape = g.op("Shape", patches)
        grid = g.op("Slice", shape, numbers(2), numbers(4), numbers(0))
        size = g.op(
            "Concat", g.op("Slice", g.op("Shape", table), numbers(0), numbers(2), numbers(0)), grid, axis_i=0
        )
        empty = g.op("Constant", value_t=torch.zeros(0))
        how: dict[str, Any] = {
            "mode_s": "cubic",
            "cubic_coeff_a_f": -0.5,
            "exclude_outside_i": 1,
            "antialias_i": 1,
        }
        return g.op("Resize", table, empty, empty, size, coordinate_transformation_mode_s="half_pixel", **how)


class AveragedViT(nn.Module):
    """Pixels of any size to features (N, D) and locations (N, h, w, D), whose mean they are."""

    def __init__(self, visual: VisionTransformer):
        super().__init__()
        self.visual = visual

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        visual: Any = self.visual
        patches = visual.conv1(pixels)
        held = visual.positional_embedding
        rows, columns = visual.grid_size
        table = held[1:].T.reshape(1, -1, rows, columns)
        x = (patches + _Positions.apply(table, patches)).flatten(2).transpose(1, 2)
        first = (visual.class_embedding + held[0]).expand(x.shape[0], 1, -1)
        x = run_blocks(visual.transformer.resblocks, visual.ln_pre(torch.cat([first, x], dim=1)))
        x = visual.ln_post(x[:, 1:]) @ visual.proj
        return x.mean(dim=1), x.reshape(x.shape[0], patches.shape[2], patches.shape[3], -1)


def is_averaged(visual: nn.Module) -> bool:
    """Whether a tower is a plain ViT that averages its patches after the last norm."""
    if not isinstance(visual, VisionTransformer) or visual.attn_pool is not None or visual.proj is None:
        return False
    return visual.pool_type == "avg" and not visual.final_ln_after_pool and plain_blocks(visual)
