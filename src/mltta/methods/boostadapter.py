"""BoostAdapter: TDA's caches, temporarily extended by the image's own confident crops. No gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mltta.methods.base import State, register
from mltta.methods.config import MOST_KEPT, setting
from mltta.methods.tda import TDA, TDAConfig


@dataclass(frozen=True)
class BoostConfig(TDAConfig):
    """TDA's settings; the release tunes delta for every dataset, from 0 to 3."""

    views: int = setting(64, "views per image, including the clean one")
    delta: int = setting(3, "maximum number of crops added to a label's cache", least=0, most=MOST_KEPT)
    query: Literal["clean", "mean"] = setting(
        "clean", "query: the clean view, or the mean of the confident views"
    )


@register("boostadapter", "TDA plus the image's own confident crops, online (NeurIPS 2024)")
class BoostAdapter(TDA):
    """TDA's caches plus the image's confident crops; the cache of uncertain images is first in, first out.

    The paper: https://arxiv.org/abs/2410.15430
    """

    Config = BoostConfig
    config: BoostConfig

    def start(self) -> State:
        state = super().start()
        if self.config.negative:
            state["negative_age"] = torch.zeros_like(state["negative_entropy"])
        return state

    def asked(self, sure: Tensor) -> Tensor:
        return sure if self.config.query == "mean" else torch.arange(len(sure), device=sure.device) == 0

    def support(self, state: State, image: Tensor, crops: Tensor, rows: Tensor, doubts: Tensor) -> Tensor:
        """Contribution (C,) of each label's most confident entries, from its cache and its own crops among (n, D)."""
        c, labels = self.config, torch.arange(rows.shape[-1], device=rows.device)
        own = rows.argmax(dim=-1)[None] == labels[:, None]  # (C, n)
        like_crops = (-c.positive_beta * (1 - crops @ image)).exp()
        held = self.likeness(state, "positive", image, c.positive_beta)  # (C, S)
        like = torch.cat([held, torch.where(own, like_crops, 0.0)], dim=1)
        doubt = torch.cat([state["positive_entropy"], torch.where(own, doubts, torch.inf)], dim=1)
        room = min(c.positive_capacity + c.delta, doubt.shape[1])
        return like.gather(1, doubt.topk(room, dim=1, largest=False).indices).sum(dim=-1)

    def keep_doubtful(self, state: State, label: int, doubt: float, image: Tensor, mask: Tensor) -> None:
        """Replace the label's oldest entry by an uncertain image."""
        age = state["negative_age"][label]  # (S,) counted in the label's own images, 0 if empty
        slot = int(age.argmin())
        age[slot] = age.max() + 1
        state["negative_entropy"][label, slot] = doubt
        state["negative_key"][label, slot] = image
        state["negative_mask"][label, slot] = mask
