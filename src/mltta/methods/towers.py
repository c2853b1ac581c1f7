"""ViT image towers with access to their internals: attention for TagCLIP, a prompt inside for DART."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.model.backbone import Backbone
from mltta.model.local import unmixed
from mltta.model.passes import CPU_CHUNK
from mltta.model.vit import class_feature, is_plain, patch_tokens

#: bias added to the class token's attention outside of its region
_SHUT = -1000.0


class AttentiveViT:
    """A backbone's image tower whose attention can be read and restricted to a region."""

    def __init__(self, backbone: Backbone, wanted_by: str):
        """Args:
        wanted_by: the method to name in the error for an unsuitable tower.
        """
        visual: Any = backbone.model.visual
        if not is_plain(visual) or backbone.reads_context:
            kind = "uses MaPLe's prompts" if backbone.reads_context else f"is a {type(visual).__name__}"
            raise ConfigError(
                f"{wanted_by} reads the attention of a ViT with a class token, but the image tower of "
                f"{backbone.name} {kind}; use a model such as ViT-B/16, or tagclip-local, which needs no attention"
            )
        self._visual, self._backbone = visual, backbone
        #: number of patches (h, w) at the native input size
        self.grid: tuple[int, int] = tuple(visual.grid_size)
        self.patch: int = visual.conv1.kernel_size[0]

    @torch.no_grad()
    def patches(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """For one image (3, S, S): unit features (h, w, D), and each block's attention (blocks, hw, hw).

        Attention is the mean over heads, without the class token's row and column, so rows add up to less than 1.
        """
        x, grid = self._tokens(pixels[None])
        *before, last = self._visual.transformer.resblocks
        seen = []
        for block in before:
            normed = block.ln_1(x)
            mixed, attention = block.attn(normed, normed, normed, average_attn_weights=True)
            seen.append(attention[0, 1:, 1:])
            x = x + block.ls_1(mixed)
            x = x + block.ls_2(block.mlp(block.ln_2(x)))
        normed = last.ln_1(x)
        seen.append(last.attn(normed, normed, normed, average_attn_weights=True)[1][0, 1:, 1:])
        features = F.normalize(unmixed(self._visual, x[:, 1:]).float(), dim=-1)
        return features.view(*grid, -1), torch.stack(seen).float()

    @torch.no_grad()
    def regions(self, pixels: Tensor, inside: Tensor) -> Tensor:
        """Unit features (n, D) of views (n, 3, S, S) whose class token attends only to patches ``inside`` (n, h, w)."""
        found = []
        step = CPU_CHUNK if self._backbone.device.type == "cpu" else len(pixels)
        for part, open_ in zip(torch.split(pixels, step), torch.split(inside, step), strict=True):
            x, _ = self._tokens(part)
            n, length = x.shape[:2]
            mask = x.new_zeros(n, length, length)
            mask[:, 0, 1:] = torch.where(open_.flatten(1), 0.0, _SHUT).to(x.dtype)
            for block in self._visual.transformer.resblocks:
                x = block(x, attn_mask=mask.repeat_interleave(block.attn.num_heads, dim=0))
            found.append(class_feature(self._visual, x))
        return F.normalize(torch.cat(found).float(), dim=-1)

    def _tokens(self, pixels: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Input of the first block, and the number of patch rows and columns."""
        x, grid = patch_tokens(self._visual, pixels.to(self._backbone.device, self._backbone.image_dtype))
        return self._visual.ln_pre(x), grid


class PromptedViT:
    """A backbone's image tower, split before the prompted block.

    ``begin`` does not depend on the prompt and runs once per image; ``finish`` is differentiable.
    """

    def __init__(self, backbone: Backbone, layer: int):
        """Args:
        layer: the prompted block, counted from 0.
        """
        visual: Any = backbone.model.visual
        if not is_plain(visual):
            raise ConfigError(
                f"DART's image prompt needs a ViT image tower with a class token, but that of {backbone.name} "
                f"is a {type(visual).__name__}; use a model such as ViT-B/16"
            )
        self._blocks = list(visual.transformer.resblocks)
        if not 0 <= layer < len(self._blocks):
            raise ConfigError(
                f"layer = {layer}: {backbone.name} has image-tower blocks 0 to {len(self._blocks) - 1}"
            )
        self._visual, self._backbone, self._layer = visual, backbone, layer
        #: width of a key and of a value
        self.width: int = visual.class_embedding.shape[0]

    @torch.no_grad()
    def begin(self, pixels: Tensor) -> Tensor:
        """Tokens (N, L, W) at the prompted block's input, from normalized images (N, 3, S, S)."""
        visual, backbone = self._visual, self._backbone
        pixels = pixels.to(backbone.device, backbone.image_dtype)
        found = []
        for part in self._parts(pixels.contiguous(memory_format=torch.channels_last)):
            x = visual.ln_pre(patch_tokens(visual, part)[0])
            for block in self._blocks[: self._layer]:
                x = _run(block, x)
            found.append(x)
        return torch.cat(found)

    def finish(self, tokens: Tensor, prompt: Tensor | None) -> Tensor:
        """Unit float32 features (N, D) from ``begin``'s tokens with a prompt (2, W): a key, then a value."""
        found = []
        for x in self._parts(tokens):
            for i, block in enumerate(self._blocks[self._layer :]):
                x = _run(block, x, prompt if i == 0 else None)
            found.append(class_feature(self._visual, x))
        return F.normalize(torch.cat(found).float(), dim=-1)

    def _parts(self, views: Tensor) -> tuple[Tensor, ...]:
        return torch.split(views, CPU_CHUNK) if self._backbone.device.type == "cpu" else (views,)


def _run(block: Any, x: Tensor, prompt: Tensor | None = None) -> Tensor:
    """One residual block; the prompt follows the class token as key and value only, without a query."""
    query = block.ln_1(x)
    key = value = query
    if prompt is not None:
        key, value = (
            torch.cat([query[:, :1], one.to(query.dtype).expand(len(query), 1, -1), query[:, 1:]], dim=1)
            for one in prompt
        )
    x = x + block.ls_1(block.attn(query, key, value, need_weights=False)[0])
    return x + block.ls_2(block.mlp(block.ln_2(x)))  # type: ignore[no-any-return]
