"""TDA: two caches of confident and of doubtful images, read by likeness. No gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.methods.base import OnlineMethod, State, register
from mltta.methods.config import MOST_KEPT, Rule, ViewConfig
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class TDAConfig(ViewConfig):
    """The settings of the release for ImageNet; it sets the positive alpha and beta anew for every dataset."""

    #: 1: the clean view alone; 64: the mean of the confident views, as the release does on ImageNet's variants
    views: int = 1
    positive_capacity: int = 3
    positive_alpha: float = 2.0
    positive_beta: float = 5.0
    #: whether doubtful images speak against the labels they might show
    negative: bool = True
    negative_capacity: int = 2
    negative_alpha: float = 0.117
    negative_beta: float = 1.0
    #: an image is doubtful when its entropy in nats, over log2(C), lies between; ln 2 is the most there can be
    entropy_low: float = 0.2
    entropy_high: float = 0.5
    #: a doubtful image speaks against the labels whose probability lies between
    mask_low: float = 0.03
    mask_high: float = 1.0

    def rules(self) -> dict[str, Rule]:
        return {
            **super().rules(),
            "positive_capacity": (
                lambda: 1 <= self.positive_capacity <= MOST_KEPT,
                f"at least 1, at most {MOST_KEPT}",
            ),
            "negative_capacity": (
                lambda: 1 <= self.negative_capacity <= MOST_KEPT,
                f"at least 1, at most {MOST_KEPT}",
            ),
            "entropy_low": (lambda: self.entropy_low <= self.entropy_high, "at most entropy_high"),
            "mask_low": (lambda: self.mask_low <= self.mask_high, "at most mask_high"),
        }


@register("tda", "training-free dynamic adapter: caches of confident and doubtful images, online (CVPR 2024)")
class TDA(OnlineMethod):
    """Remember the image under its likeliest label, then let what is remembered speak for and against labels.

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
        chosen = select_confident(entropy(rows), c.select_ratio)
        image = views[chosen].mean(dim=0)  # (D,), not brought back to unit length, as released
        logits = self.logits(image[None], self.text.features)[0]  # (C,), the mean of the chosen rows
        doubt, label = float(marginal_entropy(rows, chosen)), int(logits.argmax())

        # Written before it is read: an image always finds itself.
        remember(state, "positive", label, doubt, key=image)
        scores = logits + c.positive_alpha * self.likeness(state, "positive", image, c.positive_beta).sum(-1)
        if c.negative:
            bits = math.log2(len(logits))
            if c.entropy_low * bits < doubt < c.entropy_high * bits:
                p = rows[chosen].softmax(dim=-1).mean(dim=0)
                mask = (p > c.mask_low) & (p < c.mask_high)
                remember(state, "negative", label, doubt, key=image, mask=mask)
            like = self.likeness(state, "negative", image, c.negative_beta).flatten()  # (C S,)
            against = like @ state["negative_mask"].flatten(0, 1).float()
            scores = scores - c.negative_alpha * against
        return {"view": scores[None]}, state

    @staticmethod
    def likeness(state: State, memory: str, image: Tensor, beta: float) -> Tensor:
        """exp(-beta (1 - cosine)) of the image with every slot (C, S); 0 where a slot is empty."""
        like = (-beta * (1 - state[f"{memory}_key"] @ image)).exp()
        return like.masked_fill(state[f"{memory}_entropy"].isinf(), 0.0)


def empty_memory(memory: str, labels: int, capacity: int, **slot: Tensor) -> State:
    """Slots (C, S, ...) for what ``remember`` keeps, like the empty ``slot``, whose entropy is infinite."""
    doubt = torch.full((), torch.inf, device=next(iter(slot.values())).device)
    return {
        f"{memory}_{name}": item.expand(labels, capacity, *item.shape).clone()
        for name, item in {"entropy": doubt, **slot}.items()
    }


def remember(state: State, memory: str, label: int, entropy: float, **items: Tensor) -> None:
    """Keep an image in an empty slot of its label, or else in place of the least confident if it is surer."""
    held = state[f"{memory}_entropy"][label]  # (S,)
    slot = int(held.argmax())  # an empty slot first
    if entropy < held[slot]:
        held[slot] = entropy
        for name, item in items.items():
            state[f"{memory}_{name}"][label, slot] = item
