"""What a ViT's patches say and attend to, and its class token kept to a region: TagCLIP's two looks."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.model.backbone import Backbone
from mltta.model.local import image_tokens, unmixed
from mltta.model.passes import CPU_CHUNK
from mltta.model.vit import class_feature, is_plain

#: added to what the class token would attend to outside of its region
_SHUT = -1000.0


class AttentiveViT:
    """The image tower of a backbone, whose attention can be read and kept to a region."""

    def __init__(self, backbone: Backbone, wanted_by: str):
        """Args:
        wanted_by: the method that an unfit tower is refused for.
        """
        visual: Any = backbone.model.visual
        if not is_plain(visual) or backbone.reads_context:
            kind = "reads MaPLe's prompts" if backbone.reads_context else f"is a {type(visual).__name__}"
            raise ConfigError(
                f"{wanted_by} reads the attention of a ViT with a class token, and the image tower of "
                f"{backbone.name} {kind}; take a model such as ViT-B/16, or tagclip-local, which needs no attention"
            )
        self._visual, self._backbone = visual, backbone
        #: patches of a view of the model's own size, (h, w)
        self.grid: tuple[int, int] = tuple(visual.grid_size)
        self.patch: int = visual.conv1.kernel_size[0]

    @torch.no_grad()
    def patches(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Of one image (3, S, S): unit features (h, w, D), and each block's attention (blocks, hw, hw).

        Attention is the mean over heads, without the class token's row and column; a row adds up to less than 1.
        """
        x, grid = image_tokens(self._visual, self._ready(pixels[None]))
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
        """Unit features (n, D) of views (n, 3, S, S) whose class token sees only the patches ``inside`` (n, h, w)."""
        found = []
        step = CPU_CHUNK if self._backbone.device.type == "cpu" else len(pixels)
        for part, open_ in zip(torch.split(pixels, step), torch.split(inside, step), strict=True):
            x, _ = image_tokens(self._visual, self._ready(part))
            n, length = x.shape[:2]
            mask = x.new_zeros(n, length, length)
            mask[:, 0, 1:] = torch.where(open_.flatten(1), 0.0, _SHUT).to(x.dtype)
            for block in self._visual.transformer.resblocks:
                x = block(x, attn_mask=mask.repeat_interleave(block.attn.num_heads, dim=0))
            found.append(class_feature(self._visual, x))
        return F.normalize(torch.cat(found).float(), dim=-1)

    def _ready(self, pixels: Tensor) -> Tensor:
        return pixels.to(self._backbone.device, self._backbone.image_dtype)
