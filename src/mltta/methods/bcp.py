"""BCP: labels that go with an image's surest label gain, others lose, in closed form. No gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.methods.base import OnlineMethod, State, register
from mltta.methods.config import SHARE, Config, setting
from mltta.model.encoded import Encoded


@dataclass(frozen=True)
class BCPConfig(Config):
    """Constants that the source leaves open, chosen on the dev sets (docs/methods.md)."""

    confidence: float = setting(0.6, "mu: correct an image if its surest label is above this", **SHARE)
    warm_up: int = setting(10, "images before the first correction", least=0)
    smoothing: float = setting(20.0, "evidence that the anchor says nothing, in images", above=0)
    most: float = setting(5.0, "the most that a label gains or loses, in nats", least=0)


@register("bcp", "labels corrected by how often they go with the surest one, online (2026)")
class BCP(OnlineMethod):
    """Each logit gains the pointwise mutual information of its label with the anchor, counted over the images before.

    A reconstruction: there is no code, and smoothing, warm-up and threshold are not told.
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
        # Read before it is written, and what is counted is not corrected: no belief confirms itself.
        state["one"] += p
        state["two"] += torch.outer(p, p)
        state["images"] += 1
        return {"view": scores}, state

    def correction(self, state: State, p: Tensor) -> Tensor:
        """What each label (C,) gains beside the anchor of an image with these probabilities."""
        c, anchor = self.config, int(p.argmax())
        if float(state["images"]) < c.warm_up or float(p[anchor]) <= c.confidence:
            return torch.zeros_like(p)
        tiny = 1e-6
        alone = (state["one"] + tiny) / (state["images"] + tiny * len(p))
        beside = (state["two"][:, anchor] + c.smoothing * alone) / (state["one"][anchor] + c.smoothing)
        gain: Tensor = (beside.log() - alone.log()).clamp(-c.most, c.most)
        gain[anchor] = 0.0  # the anchor itself stays as it is
        return gain
