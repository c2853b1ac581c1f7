"""BCP: labels that co-occur with an image's top label gain, others lose, in closed form. No gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.methods.base import OnlineMethod, State, register
from mltta.methods.config import SHARE, Config, setting
from mltta.model.encoded import Encoded


@dataclass(frozen=True)
class BCPConfig(Config):
    """Constants that the source does not specify, chosen on the dev sets (docs/methods.md)."""

    confidence: float = setting(0.6, "mu: correct images whose top label is above this probability", **SHARE)
    warm_up: int = setting(10, "images before the first correction", least=0)
    smoothing: float = setting(20.0, "strength of the independence prior, in images", above=0)
    most: float = setting(5.0, "maximum gain or loss of a label, in nats", least=0)


@register("bcp", "labels corrected by their co-occurrence with the top label, online (2026)")
class BCP(OnlineMethod):
    """Adds to each logit the pointwise mutual information of its label with the anchor, counted over earlier images.

    A reconstruction: there is no code, and the paper does not give smoothing, warm-up and threshold.
    The paper: https://arxiv.org/abs/2606.12925
    """

    Config = BCPConfig
    reconstruction = True
    config: BCPConfig

    def start(self) -> State:
        text = self.text.features
        labels = len(text)
        return {
            "one": text.new_zeros(labels),
            "two": text.new_zeros(labels, labels),
            "images": text.new_zeros(()),
        }

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        logits = self.logits(encoded.features(self.needs[0])[0], self.text.features)  # (1, C)
        p = logits[0].softmax(dim=-1)
        scores = logits + self.correction(state, p)
        # Read before it is written, and counts use uncorrected scores: predictions do not reinforce themselves.
        state["one"] += p
        state["two"] += torch.outer(p, p)
        state["images"] += 1
        return {"view": scores}, state

    def correction(self, state: State, p: Tensor) -> Tensor:
        """Correction of each label (C,), for the anchor of an image with these probabilities."""
        c, anchor = self.config, int(p.argmax())
        if float(state["images"]) < c.warm_up or float(p[anchor]) <= c.confidence:
            return torch.zeros_like(p)
        tiny = 1e-6
        alone = (state["one"] + tiny) / (state["images"] + tiny * len(p))
        beside = (state["two"][:, anchor] + c.smoothing * alone) / (state["one"][anchor] + c.smoothing)
        gain: Tensor = (beside.log() - alone.log()).clamp(-c.most, c.most)
        gain[anchor] = 0.0  # the anchor is not corrected
        return gain
