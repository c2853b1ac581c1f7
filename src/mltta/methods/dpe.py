"""DPE: textual and visual prototypes that evolve together, refined for each image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.methods.base import OnlineMethod, State, register
from mltta.methods.config import MOST_KEPT, ViewConfig, setting
from mltta.methods.memory import align, empty_memory, likeness, prototypes, remember, stepped
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class DPEConfig(ViewConfig):
    """The release's settings for ImageNet; it tunes alpha and the learning rate for every dataset."""

    capacity: int = setting(3, "images kept per label", least=1, most=MOST_KEPT)
    alpha: float = setting(6.0, "weight of the visual prototypes")
    beta: float = setting(5.0, "decay of a prototype's weight with distance")
    lr: float = setting(6e-4, "learning rate of both prototypes", least=0)
    align: float = setting(0.5, "weight of the alignment loss between prototypes and texts", least=0)
    gate: float = setting(0.1, "update texts with images below this entropy, in nats divided by log2(C)")


@register("dpe", "dual prototypes, textual and visual, that evolve with the stream, online (NeurIPS 2024)")
class DPE(OnlineMethod):
    """One step on residuals of both prototypes, then the clean view is scored; confident images update the texts.

    The paper: https://arxiv.org/abs/2410.12790. It uses many prompts per label; any template works here.
    """

    Config = DPEConfig
    config: DPEConfig

    def start(self) -> State:
        text = self.text.features  # (C, D)
        memory = empty_memory("image", len(text), self.config.capacity, key=text.new_zeros(text.shape[1]))
        return {**memory, "text": text.clone(), "updates": text.new_zeros(())}

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c, views = self.config, encoded.features(self.needs[0])[0]  # (N, D)
        text = state["text"]
        start = F.normalize(text, dim=-1)
        rows = self.logits(views, start)  # (N, C)
        sure = select_confident(entropy(rows), c.select_ratio)
        image = views[sure].mean(dim=0)  # (D,), not normalized, as released
        label = int(rows[sure].mean(dim=0).argmax())
        remember(state, "image", label, float(marginal_entropy(rows, sure)), key=image)
        keys, held = prototypes(state, "image")

        def loss(of_text: Tensor, of_keys: Tensor) -> Tensor:
            moved, shifted = F.normalize(text + of_text, dim=-1), F.normalize(keys + of_keys, dim=-1)
            logits = self.logits(image[None], moved)[0] + likeness(image, shifted, held, c.alpha, c.beta)
            return entropy(logits) + c.align * align(shifted, moved, held)

        of_text, of_keys = stepped(loss, (text, keys), c.lr)
        moved, shifted = F.normalize(text + of_text, dim=-1), F.normalize(keys + of_keys, dim=-1)
        scores = self.logits(views[:1], moved) + likeness(views[:1], shifted, held, c.alpha, c.beta)
        if float(entropy(scores)) < c.gate * math.log2(len(text)):
            state["updates"] = state["updates"] + 1
            # a running mean that counts the initial texts as one image and is not normalized
            state["text"] = torch.lerp(text, moved, 1 / (float(state["updates"]) + 1))
        return {"view": scores}, state
