"""BoostAdapter: TDA's caches, and beside them for a moment the image's own confident crops. No gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mltta.methods.base import State
from mltta.methods.config import MOST_KEPT, setting
from mltta.methods.memory import remember
from mltta.methods.registry import register
from mltta.methods.tda import TDA, TDAConfig
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class BoostConfig(TDAConfig):
    """TDA's settings; delta is set anew for every dataset by the release, from 0 to 3."""

    views: int = setting(64, "views per image, the clean one among them")
    delta: int = setting(
        3, "crops of the image that a label may hear beyond its cache", least=0, most=MOST_KEPT
    )
    query: Literal["clean", "mean"] = setting(
        "clean", "ask for the clean view, or for the mean of the confident views, as on ImageNet's variants"
    )


@register("boostadapter", "TDA and the image's own confident crops, online (NeurIPS 2024)")
class BoostAdapter(TDA):
    """The caches of TDA, those of doubtful images first in, first out, read together with the confident crops.

    The paper: https://arxiv.org/abs/2410.15430
    """

    Config = BoostConfig
    config: BoostConfig

    def start(self) -> State:
        state = super().start()
        if self.config.negative:
            state["negative_age"] = torch.zeros_like(state["negative_entropy"])
        return state

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c = self.config
        views = encoded.features(self.needs[0])[0]  # (N, D)
        rows = self.logits(views, self.text.features)  # (N, C)
        doubts = entropy(rows)
        sure = select_confident(doubts, c.select_ratio)
        asked = sure if c.query == "mean" else torch.arange(len(rows), device=rows.device) == 0
        image = views[asked].mean(dim=0)  # (D,), not brought back to unit length, as released
        logits = self.logits(image[None], self.text.features)[0]  # (C,)
        doubt, label = float(marginal_entropy(rows, asked)), int(logits.argmax())

        remember(state, "positive", label, doubt, key=image)
        scores = logits + c.positive_alpha * self.boosted(state, image, views[sure], rows[sure], doubts[sure])
        if c.negative:
            bits = math.log2(len(logits))
            if c.entropy_low * bits < doubt < c.entropy_high * bits:
                p = rows[asked].softmax(dim=-1).mean(dim=0)
                self.queue(state, label, doubt, image, (p > c.mask_low) & (p < c.mask_high))
            like = self.likeness(state, "negative", image, c.negative_beta).flatten()  # (C S,)
            scores = scores - c.negative_alpha * (like @ state["negative_mask"].flatten(0, 1).float())
        return {"view": scores[None]}, state

    def boosted(self, state: State, image: Tensor, crops: Tensor, rows: Tensor, doubts: Tensor) -> Tensor:
        """Likeness (C,) of the image to the surest of each label's cache and of the crops (n, D) that show it."""
        c, labels = self.config, torch.arange(rows.shape[-1], device=rows.device)
        own = rows.argmax(dim=-1)[None] == labels[:, None]  # (C, n)
        like_crops = (-c.positive_beta * (1 - crops @ image)).exp()
        held = self.likeness(state, "positive", image, c.positive_beta)  # (C, S)
        like = torch.cat([held, torch.where(own, like_crops, 0.0)], dim=1)
        doubt = torch.cat([state["positive_entropy"], torch.where(own, doubts, torch.inf)], dim=1)
        room = min(c.positive_capacity + c.delta, doubt.shape[1])
        return like.gather(1, doubt.topk(room, dim=1, largest=False).indices).sum(dim=-1)

    @staticmethod
    def queue(state: State, label: int, doubt: float, image: Tensor, mask: Tensor) -> None:
        """Keep a doubtful image in the place of its label's oldest."""
        age = state["negative_age"][label]  # (S,) counted in the label's own images, 0 where empty
        slot = int(age.argmin())
        age[slot] = age.max() + 1
        state["negative_entropy"][label, slot] = doubt
        state["negative_key"][label, slot] = image
        state["negative_mask"][label, slot] = mask
