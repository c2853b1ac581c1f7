"""ZERO: each confident view votes for its top label. No gradient, no text tower."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.methods.base import Emits, Method, register
from mltta.methods.config import ViewConfig, setting
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, select_confident


@dataclass(frozen=True)
class ZeroConfig(ViewConfig):
    """The paper's settings. Votes alone leave most labels at zero, so cosines rank labels with equal votes."""

    # The released program runs in half precision and divides by that type's epsilon, which is not zero.
    PRESETS = {"released": {"temperature": 2.0**-10, "cosine": 0.0}}

    select_ratio: float = 0.3
    temperature: float = setting(0.0, "softmax temperature of the votes; 0: one label per vote", least=0)
    cosine: float = setting(1e-3, "weight of the mean cosine; 1e-3 never overrides a vote", least=0)


@register("zero", "votes of the confident views at zero temperature (NeurIPS 2024)")
class Zero(Method):
    """Votes of the confident views; ties are broken by the next most confident view.

    The paper: https://arxiv.org/abs/2405.18330. It assumes one label per image; the ranking within equal votes is ours.
    """

    Config = ZeroConfig
    emits: Emits = "probabilities"
    config: ZeroConfig

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        c, views = self.config, self.views(encoded).features  # (B, N, D)
        cosines = views @ self.text.features.T  # (B, N, C)
        doubt = entropy(self.logit_scale * cosines)
        rows = select_confident(doubt, c.select_ratio)
        votes = torch.where(rows[..., None], self.votes(cosines), 0.0).sum(dim=1)  # (B, C)
        votes = votes + self.tie_break(votes, cosines.argmax(dim=-1), doubt.masked_fill(rows, torch.inf))
        kept = torch.where(rows[..., None], cosines, 0.0).sum(dim=1) / rows.sum(dim=1, keepdim=True)
        # cosines may be negative; shifted to [0, 1] so that no label scores below zero votes
        return {"view": votes + c.cosine * (kept + 1) / 2}

    def votes(self, cosines: Tensor) -> Tensor:
        """How each view (B, N, C) divides its vote; identical labels share it."""
        if self.config.temperature > 0:
            return (cosines / self.config.temperature).softmax(dim=-1)
        best = (cosines == cosines.amax(dim=-1, keepdim=True)).to(cosines.dtype)
        return best / best.sum(dim=-1, keepdim=True)

    @staticmethod
    def tie_break(votes: Tensor, shown: Tensor, doubt: Tensor) -> Tensor:
        """One extra vote (B, C) among tied leading labels, from the most confident other view that shows one of them.

        Args:
            shown: (B, N) top label of each view.
            doubt: (B, N) entropy of the views, infinite for those that have voted.
        """
        leads = votes == votes.amax(dim=-1, keepdim=True)  # (B, C)
        doubt = doubt.masked_fill(~leads.gather(-1, shown), torch.inf)
        best = doubt.argmin(dim=-1, keepdim=True)  # (B, 1)
        decides = (leads.sum(dim=-1, keepdim=True) > 1) & doubt.gather(-1, best).isfinite()
        return torch.zeros_like(votes).scatter(-1, shown.gather(-1, best), decides.to(votes.dtype))
