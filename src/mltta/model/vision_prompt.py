"""DART's image prompt: one more key and value in one block of a ViT."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.model.backbone import Backbone
from mltta.model.passes import CPU_CHUNK
from mltta.model.vit import class_feature, is_plain, patch_tokens


class PromptedViT:
    """The image tower of a backbone, cut in two before the prompted block.

    ``begin`` does not depend on the prompt and is run once an image; ``finish`` is differentiable.
    """

    def __init__(self, backbone: Backbone, layer: int):
        """Args:
        layer: the prompted block, counted from 0.
        """
        visual: Any = backbone.model.visual
        if not is_plain(visual):
            raise ConfigError(
                f"DART's image prompt needs a ViT image tower with a class token, and that of {backbone.name} "
                f"is a {type(visual).__name__}; take a model such as ViT-B/16"
            )
        self._blocks = list(visual.transformer.resblocks)
        if not 0 <= layer < len(self._blocks):
            raise ConfigError(
                f"layer = {layer}: the image tower of {backbone.name} has blocks 0 to {len(self._blocks) - 1}"
            )
        self._visual, self._backbone, self._layer = visual, backbone, layer
        #: the length of a key, and of a value
        self.width: int = visual.class_embedding.shape[0]

    @torch.no_grad()
    def begin(self, pixels: Tensor) -> Tensor:
        """Tokens (N, L, W) that reach the prompted block, from normalised images (N, 3, S, S)."""
        visual, backbone = self._visual, self._backbone
        pixels = pixels.to(backbone.device, backbone.image_dtype)
        found = []
        for part in self._parts(pixels.contiguous(memory_format=torch.channels_last)):
            x = visual.ln_pre(patch_tokens(visual, part))
            for block in self._blocks[: self._layer]:
                x = _run(block, x)
            found.append(x)
        return torch.cat(found)

    def finish(self, tokens: Tensor, prompt: Tensor | None) -> Tensor:
        """Unit float32 features (N, D) from ``begin``'s tokens under a prompt (2, W): a key, then a value."""
        found = []
        for x in self._parts(tokens):
            for i, block in enumerate(self._blocks[self._layer :]):
                x = _run(block, x, prompt if i == 0 else None)
            found.append(class_feature(self._visual, x))
        return F.normalize(torch.cat(found).float(), dim=-1)

    def _parts(self, views: Tensor) -> tuple[Tensor, ...]:
        return torch.split(views, CPU_CHUNK) if self._backbone.device.type == "cpu" else (views,)


def _run(block: Any, x: Tensor, prompt: Tensor | None = None) -> Tensor:
    """One residual block; the prompt stands behind the class token, and nothing asks from its place."""
    query = block.ln_1(x)
    key = value = query
    if prompt is not None:
        key, value = (
            torch.cat([query[:, :1], one.to(query.dtype).expand(len(query), 1, -1), query[:, 1:]], dim=1)
            for one in prompt
        )
    x = x + block.ls_1(block.attn(query, key, value, need_weights=False)[0])
    return x + block.ls_2(block.mlp(block.ln_2(x)))  # type: ignore[no-any-return]
