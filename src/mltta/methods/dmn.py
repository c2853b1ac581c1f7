"""DMN: a memory of images per label, combined into prototypes by similarity. No gradient, no training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from mltta.methods.base import Emits, OnlineMethod, State, register
from mltta.methods.config import MOST_KEPT, ViewConfig, setting
from mltta.methods.memory import empty_memory, remember
from mltta.model.encoded import Encoded
from mltta.objectives import select_confident


@dataclass(frozen=True)
class DMNConfig(ViewConfig):
    """The settings of the published scripts, without labelled images."""

    PRESETS = {"released": {"augmix": True, "score": "probs"}}

    views: int = 32  # as in the scripts; the released program defaults to 64
    memory: int = setting(50, "images kept per label", least=1, most=MOST_KEPT)
    beta: float = setting(5.5, "decay of a kept image's weight with distance")
    # the release searches this on the test labels; here it is fixed
    beta2: float = setting(1.0, "weight of the memory")
    score: Literal["logits", "probs"] = setting("logits", "logits (ours) or probabilities (released)")


@register("dmn", "dual memory networks, training-free: a memory of images per label, online (CVPR 2024)")
class DMN(OnlineMethod):
    """Store the clean view under its top label, then score it by text and by each label's memory.

    The paper: https://arxiv.org/abs/2403.17589
    """

    Config = DMNConfig
    branch_names = ["text", "memory"]
    config: DMNConfig

    @property
    def emits(self) -> Emits:
        return "logits" if self.config.score == "logits" else "probabilities"

    def start(self) -> State:
        labels, width = self.text.features.shape
        return empty_memory("image", labels, self.config.memory, key=self.text.features.new_zeros(width))

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c, views = self.config, encoded.features(self.needs[0])[0]  # (N, D)
        guess = self.guess(views)
        # Written before it is read: every image finds itself in memory.
        remember(state, "image", int(guess.argmax()), float(_entropy(guess, 1e-8)), key=views[0])
        text = self.logits(views[:1], self.text.features)  # (1, C)
        memory = self.logits(views[:1], self.prototypes(state, views[0]))
        if c.score == "probs":
            text, memory = text.softmax(dim=-1), memory.softmax(dim=-1)
        return {"text": text, "memory": c.beta2 * memory}, state

    def guess(self, views: Tensor) -> Tensor:
        """Mean probabilities (C,) of the confident views, which decide under which label the image is stored."""
        p: Tensor = self.logits(views, self.text.features).softmax(dim=-1)
        return p[select_confident(_entropy(p, 1e-6), self.config.select_ratio)].mean(dim=0)

    def prototypes(self, state: State, image: Tensor) -> Tensor:
        """Prototypes (C, D): mean of each label's memory and prompt, weighted by similarity to the image."""
        kept, text = state["image_key"], self.text.features  # empty slots are zeros and contribute nothing
        like = (-self.config.beta * (1 - kept @ image)).exp()  # (C, S)
        like_text = (-self.config.beta * (1 - text @ image)).exp()  # (C,)
        weighted = (like[:, None] @ kept)[:, 0] + like_text[:, None] * text
        return F.normalize(weighted, dim=-1)


def _entropy(p: Tensor, eps: float) -> Tensor:
    """Entropy of probabilities, with the released code's offsets inside the logarithm."""
    return -(p * (p + eps).log()).sum(dim=-1)
