"""PIAA, causal: a Gaussian per label, fitted to confident locations of earlier images. No gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.images.specs import AnySpec, LocalSpec
from mltta.methods.base import Emits, OnlineMethod, State, register
from mltta.methods.config import MOST_KEPT, SHARE, Config, setting
from mltta.methods.memory import empty_memory
from mltta.model.encoded import Encoded
from mltta.objectives import entropy


@dataclass(frozen=True)
class PIAAConfig(Config):
    """The release's constants for COCO if they vary by dataset; the bank, `again_at` and `weight` are ours."""

    scale: float = setting(1.0, "input size for locations, times the native size", least=0.25, most=8)
    memory: int = setting(32, "locations kept per label (published: 512)", least=1, most=MOST_KEPT)
    refit: int = setting(16, "images between two fits", least=1)
    given_at: float = setting(60.0, "softmax sharpness for assigning locations to labels")
    again_at: float = setting(100.0, "sharpness for reassigning the bank (COCO: 0.01, NUS-WIDE: 500)")
    soften: float = setting(500.0, "divisor of a location's fit", above=0)
    whole: float = setting(80.0, "sharpness of the image's cosines")
    local: float = setting(400.0, "sharpness of its best locations (VOC: 200)")
    weight: float = setting(0.5, "weight of the best locations", **SHARE)

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        return (LocalSpec(round(side * self.scale), 1, 1),)  # a window of one location


@register("piaa", "Gaussians of confident locations, fitted to earlier images, online (after ICML 2026)")
class PIAA(OnlineMethod):
    """The image's cosines, and how well its best location fits each label's Gaussian.

    Our causal variant, therefore a reconstruction: the published bank is filled from the dataset's training images.
    Locations are those of this package; the paper uses SC-CLIP's, ITACLIP's or SCLIP's.
    The paper: https://arxiv.org/abs/2605.25821
    """

    Config = PIAAConfig
    emits: Emits = "probabilities"
    reconstruction = True
    config: PIAAConfig

    def start(self) -> State:
        text = self.text.features  # (C, D)
        slot = {"key": text.new_zeros(text.shape[1]), "share": text.new_zeros(())}
        bias = text.new_full((len(text),), -math.log(len(text)) - 0.5)
        memory = empty_memory("bank", len(text), self.config.memory, **slot)
        return {**memory, "weight": text.clone(), "bias": bias, "images": text.new_zeros(())}

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c, found = self.config, encoded.local(self.needs[0])
        image, cells = found.clean[0, 0], found.windows[0]  # (D,), (L, D)
        fit = (cells @ state["weight"].T + state["bias"]) / c.soften  # (L, C)
        best = fit.softmax(dim=-1).amax(dim=0)
        whole = (c.whole * self.text.features @ image).softmax(dim=-1)
        scores = (1 - c.weight) * whole + c.weight * (c.local * best).softmax(dim=-1)
        # Read before it is written: an image is not fitted to itself.
        self.fill(state, cells)
        state["images"] += 1
        if int(state["images"]) % c.refit == 0:
            state["weight"], state["bias"] = self.fitted(state)
        return {"view": scores[None]}, state

    def fill(self, state: State, cells: Tensor) -> None:
        """Keep the most confident locations of each label, out of the stored ones and these (L, D)."""
        logits = self.config.given_at * cells @ self.text.features.T
        share, given = logits.softmax(dim=-1).max(dim=-1)
        doubt = entropy(logits)
        for label in sorted(set(given.tolist())):
            own = given == label
            new = {"bank_entropy": doubt[own], "bank_key": cells[own], "bank_share": share[own]}
            both = {name: torch.cat([state[name][label], items]) for name, items in new.items()}
            stay = both["bank_entropy"].argsort(stable=True)[: self.config.memory]
            for name, items in both.items():
                state[name][label] = items[stay]

    def fitted(self, state: State) -> tuple[Tensor, Tensor]:
        """Weights (C, D) and biases (C,) of Gaussians with a shared covariance, fitted twice to the bank."""
        filled = state["bank_entropy"].isfinite()  # (C, S)
        label = filled.nonzero()[:, 0]
        cells, share = state["bank_key"][filled].double(), state["bank_share"][filled].double()
        weight, bias = self.gaussians(cells, share, label)
        p = (self.config.again_at * (cells @ weight.T + bias)).softmax(dim=-1)
        share, label = p.max(dim=-1)
        hot = torch.nn.functional.one_hot(label, len(weight)).double()  # (n, C)
        count = hot.sum(dim=0).clamp(min=1)
        mean = (share @ hot) / count
        spread = ((share - mean[label]).square() @ hot / count).sqrt()
        stay = share >= (mean + spread)[label] - 1e-12
        if stay.any():
            weight, bias = self.gaussians(cells[stay], share[stay], label[stay])
        return weight.float(), bias.float()

    def gaussians(self, cells: Tensor, share: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Means weighted by share (the text, if a label has none), and weights with a regularized covariance."""
        text = self.text.features.double()
        total = torch.zeros_like(text).index_add_(0, label, share[:, None] * cells)
        mass = torch.zeros_like(text[:, 0]).index_add_(0, label, share)[:, None]
        mean = torch.where(mass > 0, total / mass.clamp(min=1e-300), text)
        apart = cells - mean[label]
        scatter, width = apart.T @ apart, cells.shape[1]
        trace = scatter.trace() / max(1, len(cells) - 1)
        weight = mean
        if float(trace) >= 1e-9:  # otherwise there is no variance yet: use the identity
            drawn = scatter + trace * torch.eye(width, dtype=scatter.dtype, device=scatter.device)
            weight = width * torch.linalg.solve(drawn, mean.T).T
        return weight, -math.log(len(text)) - 0.5 * (mean * weight).sum(dim=-1)
