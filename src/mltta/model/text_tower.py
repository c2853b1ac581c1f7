"""The parts of an open_clip text tower, whichever way a model holds it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mltta.errors import WeightsError


class TextTower:
    """The parts of an open_clip text tower, whether it sits on the model (CLIP) or in ``model.text``."""

    def __init__(self, model: nn.Module) -> None:
        root: Any = model if hasattr(model, "token_embedding") else getattr(model, "text", None)
        self.root = root
        #: whether context vectors can be put in front of a label at all
        self.tunable = hasattr(root, "token_embedding") and getattr(root, "cls_emb", None) is None
        if not self.tunable:
            return
        if not hasattr(root.transformer, "resblocks"):
            raise WeightsError(
                "this text tower has no transformer.resblocks, as in a version of open_clip that mltta does not "
                "support: pip install 'open_clip_torch>=3,<4'"
            )
        self.blocks = list(root.transformer.resblocks)
        self.pool: str = getattr(root, "text_pool_type", None) or root.pool_type
        self.mask: Tensor | None = root.attn_mask
        self.width: int = root.positional_embedding.shape[1]
        self.deep: list[Tensor] = []  # MaPLe's prompts (M, W) of the blocks behind the first
        #: causal, pooled at the end-of-text token, blocks of the plain kind: the fast path is exact
        self.causal = (
            self.mask is not None
            and self.pool in ("argmax", "eos")
            and all(isinstance(getattr(b, "attn", None), nn.MultiheadAttention) for b in self.blocks)
        )

    @property
    def positions(self) -> Tensor:
        return self.root.positional_embedding  # type: ignore[no-any-return]

    def embed(self, tokens: Tensor) -> Tensor:
        return self.root.token_embedding(tokens)  # type: ignore[no-any-return]

    def project(self, x: Tensor) -> Tensor:
        """Final norm, projection and unit length of pooled tokens (..., W)."""
        x = self.root.ln_final(x)
        projection = self.root.text_projection
        if projection is not None:
            x = projection(x) if isinstance(projection, nn.Linear) else x @ projection
        return F.normalize(x, dim=-1)

    def run(self, x: Tensor, end: Tensor) -> Tensor:
        """The plain path: embedded sequences (S, L, W) through the blocks as they are, pooled, (S, D)."""
        length = x.shape[1]
        x = x + self.positions[:length]
        mask = None if self.mask is None else self.mask[:length, :length]
        for i, block in enumerate(self.blocks):
            x = block(self.deepen(i, x), attn_mask=mask)
        at = {"first": torch.zeros_like(end), "last": torch.full_like(end, length - 1)}.get(self.pool, end)
        return self.project(x[torch.arange(x.shape[0], device=x.device), at])

    def deepen(self, i: int, x: Tensor) -> Tensor:
        """What enters block i (S, L, W): its prompts, where it has some, overwrite what is behind the start token."""
        if not 0 < i <= len(self.deep):
            return x
        prompt = self.deep[i - 1][: x.shape[1] - 1].expand(x.shape[0], -1, -1)
        return torch.cat([x[:, :1], prompt, x[:, 1 + prompt.shape[1] :]], dim=1)
