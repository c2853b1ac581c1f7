"""PIAA, causal: a Gaussian for each label, fitted to the sure locations of the images before. No gradient."""

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
    """The release's constants for COCO where it has one a dataset; the bank, `again_at` and `weight` are ours."""

    scale: float = setting(1.0, "input of the locations, in sides of the model's view", least=0.25, most=8)
    memory: int = setting(32, "locations kept for each label (published: 512)", least=1, most=MOST_KEPT)
    refit: int = setting(16, "images between two fits", least=1)
    given_at: float = setting(60.0, "sharpness at which a location is given to a label")
    again_at: float = setting(100.0, "sharpness at which the bank is given anew (COCO: 0.01, NUS-WIDE: 500)")
    soften: float = setting(500.0, "what a location's fit is divided by", above=0)
    whole: float = setting(80.0, "sharpness of the image's cosines")
    local: float = setting(400.0, "sharpness of its best locations, 200 on VOC")
    weight: float = setting(0.5, "weight of the best locations", **SHARE)

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        return (LocalSpec(round(side * self.scale), 1, 1),)  # a window of one location


@register("piaa", "Gaussians of sure locations, fitted to the images before, online (after ICML 2026)")
class PIAA(OnlineMethod):
    """The image's cosines, and how well its best location fits the Gaussian of each label.

    A causal form of ours, so a reconstruction: published, the bank is filled from the training images of the set.
    Locations are those of this package, where it has SC-CLIP's, ITACLIP's or SCLIP's.
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
        # Read before it is written: an image does not fit itself.
        self.fill(state, cells)
        state["images"] += 1
        if int(state["images"]) % c.refit == 0:
            state["weight"], state["bias"] = self.fitted(state)
        return {"view": scores[None]}, state

    def fill(self, state: State, cells: Tensor) -> None:
        """Let the surest of each label's locations, of those held and of these (L, D), stay."""
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
        """Weights (C, D) and biases (C,) of Gaussians with one covariance, fitted twice to what is held."""
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
        """Means weighted by share, a label without locations having its text; the covariance drawn to its trace."""
        text = self.text.features.double()
        total = torch.zeros_like(text).index_add_(0, label, share[:, None] * cells)
        mass = torch.zeros_like(text[:, 0]).index_add_(0, label, share)[:, None]
        mean = torch.where(mass > 0, total / mass.clamp(min=1e-300), text)
        apart = cells - mean[label]
        scatter, width = apart.T @ apart, cells.shape[1]
        trace = scatter.trace() / max(1, len(cells) - 1)
        weight = mean
        if float(trace) >= 1e-9:  # else nothing varies yet: all directions alike
            drawn = scatter + trace * torch.eye(width, dtype=scatter.dtype, device=scatter.device)
            weight = width * torch.linalg.solve(drawn, mean.T).T
        return weight, -math.log(len(text)) - 0.5 * (mean * weight).sum(dim=-1)
