"""Local features: a feature per location of an image tower's map, in the space of the labels.

How a location is projected into that space depends on how the tower pools its map:

| tower | location | mean of all locations |
|---|---|---|
| CNN, averaged, linear head (EfficientNet, FastViT) | through the head | the global feature, exactly |
| CNN, averaged, then normed (ConvNeXt) | pooled map's norm, then the head | the global feature, exactly |
| ViT, averaged, normed after | pooled map's norm, then projected | the global feature, exactly |
| ViT, normed, then averaged | projected | the global feature, exactly |
| ViT, class token | last block without mixing (MaskCLIP, TagCLIP) | another feature |
| CLIP's ResNets | value path of the attention pool (MaskCLIP) | another feature |
| ViT with attention pooling (SigLIP) | through the pool on its own | another feature |

A ViT supports other input sizes by interpolating its positions. Towers of other types have no local path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from open_clip.modified_resnet import ModifiedResNet
from open_clip.timm_model import TimmModel
from open_clip.transformer import VisionTransformer
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import Tensor, nn

from mltta.model.vit import is_plain, patch_tokens, plain_blocks, positions

#: unnormalized features (N, h, w, D) of images (N, 3, S, S) of any size
Local = Callable[[Tensor], Tensor]


def local_path(visual: nn.Module) -> Local | None:
    """The function that reads a tower's locations, or None if it is not supported."""
    if isinstance(visual, ModifiedResNet):
        return partial(_clip_resnet, visual)
    if isinstance(visual, VisionTransformer):
        if is_plain(visual):
            return partial(_class_token, visual)
        averaged = visual.attn_pool is None and visual.pool_type == "avg"
        return partial(_averaged, visual) if averaged and plain_blocks(visual) else None
    if isinstance(visual, TimmModel):
        return _timm_path(visual)
    return None


def _timm_path(visual: Any) -> Local | None:
    trunk = visual.trunk
    if isinstance(trunk, TimmViT):
        plain = getattr(getattr(trunk, "attn_pool", None), "pos_embed", 0) is None
        fits = plain and trunk.global_pool == "map" and trunk.num_prefix_tokens == 0
        return partial(_attention_pooled, visual) if fits else None
    if hasattr(trunk, "patch_embed"):  # other transformers have other map layouts
        return None
    pools = [getattr(place, "global_pool", None) for place in (trunk, getattr(trunk, "head", None))]
    averaged = any(pool == "avg" or getattr(pool, "pool_type", "") == "avg" for pool in pools)
    return partial(_cnn, visual) if averaged and hasattr(trunk, "forward_head") else None


def _cnn(visual: Any, pixels: Tensor) -> Tensor:
    """A timm network with average pooling, and its projection."""
    trunk = visual.trunk
    cells = trunk.forward_features(pixels)  # (N, C, h, w)
    n, channels, h, w = cells.shape
    norm = getattr(getattr(trunk, "head", None), "norm", None)
    if isinstance(norm, nn.LayerNorm):
        # the norm follows the average, so every location uses the statistics of the average
        normed = _normed_as(norm, cells.mean(dim=(2, 3)), cells.flatten(2).transpose(1, 2))  # (N, L, C)
        for name in ("pre_logits", "fc"):
            normed = getattr(trunk.head, name, nn.Identity())(normed)
        return visual.head(normed).view(n, h, w, -1)  # type: ignore[no-any-return]
    alone = cells.permute(0, 2, 3, 1).reshape(n * h * w, channels, 1, 1)
    return visual.head(trunk.forward_head(alone)).view(n, h, w, -1)  # type: ignore[no-any-return]


def _clip_resnet(visual: Any, pixels: Tensor) -> Tensor:
    """The value path of the attention pool: no positions, no mixing of locations."""
    x = visual.stem(pixels)
    for layer in (visual.layer1, visual.layer2, visual.layer3, visual.layer4):
        x = layer(x)
    pool = visual.attnpool
    return pool.c_proj(pool.v_proj(x.permute(0, 2, 3, 1)))  # type: ignore[no-any-return]


def _class_token(visual: Any, pixels: Tensor) -> Tensor:
    """A ViT pooled at its class token: in the last block each location attends only to itself."""
    x, grid = patch_tokens(visual, pixels)
    x = visual.ln_pre(x)
    for block in list(visual.transformer.resblocks)[:-1]:
        x = block(x)
    return unmixed(visual, x[:, 1:]).view(len(x), *grid, -1)


def unmixed(visual: Any, x: Tensor) -> Tensor:
    """Features (N, L, D) of patches (N, L, W) before the last block, in which each attends only to itself."""
    last = visual.transformer.resblocks[-1]
    width = last.attn.embed_dim
    weight, bias = last.attn.in_proj_weight, last.attn.in_proj_bias
    value = F.linear(last.ln_1(x), weight[2 * width :], None if bias is None else bias[2 * width :])
    x = x + last.ls_1(last.attn.out_proj(value))
    x = x + last.ls_2(last.mlp(last.ln_2(x)))
    x = visual.ln_post(x)
    return x if visual.proj is None else x @ visual.proj


def _averaged(visual: Any, pixels: Tensor) -> Tensor:
    """A ViT with average pooling, after a norm or followed by one."""
    x, grid = patch_tokens(visual, pixels)
    x = visual.transformer(visual.ln_pre(x))[:, 1:]
    x = _normed_as(visual.ln_post, x.mean(dim=1), x) if visual.final_ln_after_pool else visual.ln_post(x)
    x = x if visual.proj is None else x @ visual.proj
    return x.view(len(x), *grid, -1)


def _attention_pooled(visual: Any, pixels: Tensor) -> Tensor:
    """SigLIP: each location passes the pool on its own, which is then the value path and the following MLP."""
    trunk = visual.trunk
    patches = trunk.patch_embed.proj(pixels)  # (N, W, h, w)
    n, width, h, w = patches.shape
    x = patches.flatten(2).transpose(1, 2)
    x = trunk.patch_embed.norm(x)
    x = x + positions(trunk.pos_embed[0], trunk.patch_embed.grid_size, (h, w)).to(x.dtype)
    x = trunk.norm(trunk.blocks(trunk.norm_pre(trunk.pos_drop(x))))
    x = trunk.attn_pool(x.reshape(n * h * w, 1, width))
    x = trunk.head(trunk.head_drop(trunk.fc_norm(x)))
    return visual.head(x).view(n, h, w, -1)  # type: ignore[no-any-return]


def _normed_as(norm: nn.LayerNorm, pooled: Tensor, cells: Tensor) -> Tensor:
    """Cells (N, L, C) normalized by the statistics of the pooled vector (N, C): their mean is its norm."""
    var, mean = torch.var_mean(pooled.float(), dim=-1, correction=0, keepdim=True)
    scaled = (cells.float() - mean[:, None]) * (var[:, None] + norm.eps).rsqrt()
    return (scaled * norm.weight + norm.bias).to(cells.dtype)
