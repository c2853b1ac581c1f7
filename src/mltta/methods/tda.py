"""TDA: two caches, of confident and of uncertain images, compared by similarity. No gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.images.specs import require
from mltta.methods.base import OnlineMethod, State, register
from mltta.methods.config import MOST_KEPT, ViewConfig, setting
from mltta.methods.memory import empty_memory, remember
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class TDAConfig(ViewConfig):
    """The release's settings for ImageNet; it tunes the positive alpha and beta for every dataset."""

    views: int = setting(1, "1: the clean view; 64: the mean of the confident views")
    positive_capacity: int = setting(3, "confident images kept per label", least=1, most=MOST_KEPT)
    positive_alpha: float = setting(2.0, "weight of the confident images")
    positive_beta: float = setting(5.0, "decay of a confident image's weight with distance")
    negative: bool = setting(True, "lower the labels suggested by uncertain images")
    negative_capacity: int = setting(2, "uncertain images kept per label", least=1, most=MOST_KEPT)
    negative_alpha: float = setting(0.117, "weight of the uncertain images")
    negative_beta: float = setting(1.0, "decay of an uncertain image's weight with distance")
    entropy_low: float = setting(0.2, "minimum entropy of an uncertain image, in nats divided by log2(C)")
    entropy_high: float = setting(0.5, "maximum entropy of an uncertain image")
    mask_low: float = setting(0.03, "minimum probability of a label lowered by an uncertain image")
    mask_high: float = setting(1.0, "maximum probability of a label lowered by an uncertain image")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.entropy_low <= self.entropy_high, "entropy_low must be at most entropy_high")
        require(self.mask_low <= self.mask_high, "mask_low must be at most mask_high")


@register("tda", "training-free adapter: caches of confident and uncertain images, online (CVPR 2024)")
class TDA(OnlineMethod):
    """Cache the image under its top label, then adjust the logits by similarity to both caches.

    The paper: https://arxiv.org/abs/2403.18293
    """

    Config = TDAConfig
    config: TDAConfig

    def start(self) -> State:
        c, text = self.config, self.text.features
        labels, width = text.shape
        key, mask = text.new_zeros(width), text.new_zeros(labels, dtype=torch.bool)
        state = empty_memory("positive", labels, c.positive_capacity, key=key)
        if c.negative:
            state |= empty_memory("negative", labels, c.negative_capacity, key=key, mask=mask)
        return state

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c = self.config
        views = encoded.features(self.needs[0])[0]  # (N, D)
        rows = self.logits(views, self.text.features)  # (N, C)
        doubts = entropy(rows)
        sure = select_confident(doubts, c.select_ratio)
        asked = self.asked(sure)
        image = views[asked].mean(dim=0)  # (D,), not normalized, as released
        logits = self.logits(image[None], self.text.features)[0]  # (C,), the mean of the selected rows
        doubt, label = float(marginal_entropy(rows, asked)), int(logits.argmax())

        # Written before it is read: every image finds itself in the cache.
        remember(state, "positive", label, doubt, key=image)
        scores = logits + c.positive_alpha * self.support(state, image, views[sure], rows[sure], doubts[sure])
        if c.negative:
            bits = math.log2(len(logits))
            if c.entropy_low * bits < doubt < c.entropy_high * bits:
                p = rows[asked].softmax(dim=-1).mean(dim=0)
                self.keep_doubtful(state, label, doubt, image, (p > c.mask_low) & (p < c.mask_high))
            like = self.likeness(state, "negative", image, c.negative_beta).flatten()  # (C S,)
            scores = scores - c.negative_alpha * (like @ state["negative_mask"].flatten(0, 1).float())
        return {"view": scores[None]}, state

    def asked(self, sure: Tensor) -> Tensor:
        """The views (N,) whose mean represents the image, given the confident ones."""
        return sure

    def support(self, state: State, image: Tensor, crops: Tensor, rows: Tensor, doubts: Tensor) -> Tensor:
        """Contribution (C,) of the cached confident images; the image's own crops (n, D) are not used here."""
        return self.likeness(state, "positive", image, self.config.positive_beta).sum(-1)

    def keep_doubtful(self, state: State, label: int, doubt: float, image: Tensor, mask: Tensor) -> None:
        """Keep an uncertain image if it has lower entropy than what is cached for its label."""
        remember(state, "negative", label, doubt, key=image, mask=mask)

    @staticmethod
    def likeness(state: State, memory: str, image: Tensor, beta: float) -> Tensor:
        """exp(-beta (1 - cosine)) between the image and every slot (C, S); 0 for empty slots."""
        like: Tensor = (-beta * (1 - state[f"{memory}_key"] @ image)).exp()
        return like.masked_fill(state[f"{memory}_entropy"].isinf(), 0.0)
