"""PuRF: a cache of regions that show one label purely; texts move towards what regions and whole image agree on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.images.specs import AnySpec, ViewSpec, require
from mltta.methods.base import OnlineMethod, Problem, State, register
from mltta.methods.config import MOST_KEPT, MOST_VIEWS, PART, Config, setting
from mltta.methods.memory import align, empty_memory, likeness, prototypes, stepped
from mltta.methods.reta import text_experts
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class PuRFConfig(Config):
    """The paper's values where given; alpha, beta, learning rate and view sizes are ours, after DPE."""

    views: int = setting(64, "views that cover nearly all of an image", least=1, most=MOST_VIEWS)
    regions: int = setting(50, "random regions per image", least=1, most=MOST_VIEWS - 1)
    whole_from: float = setting(0.8, "minimum fraction of the image that a view covers", **PART)
    region_from: float = setting(0.05, "minimum fraction of the image that a region covers", **PART)
    region_to: float = setting(0.5, "maximum fraction of the image that a region covers", **PART)
    kappa: float = setting(0.1, "fraction of the labels that a view may name", **PART)
    select_ratio: float = setting(0.1, "fraction of views that count as confident", **PART)
    agreed: float = setting(0.2, "weight of the agreed labels relative to the entropy", least=0)
    align: float = setting(0.5, "weight of the alignment loss between prototypes and texts", least=0)
    alpha: float = setting(6.0, "weight of the visual prototypes")
    beta: float = setting(5.0, "decay of a prototype's weight with distance")
    lr: float = setting(6e-4, "learning rate of the texts", least=0)
    capacity: int = setting(3, "regions kept per label", least=1, most=MOST_KEPT)
    lifetime: float = setting(
        1000.0, "images after which a region's confidence has fallen by a factor of e", above=0
    )

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        regions = ViewSpec(count=1 + self.regions, scale=(self.region_from, self.region_to))
        return ViewSpec(count=self.views, scale=(self.whole_from, 1.0)), regions

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.region_from <= self.region_to, "region_from must be at most region_to")


@register("purf", "a cache of regions that show one label purely, with text experts, online (2026)")
class PuRF(OnlineMethod):
    """Scores of the whole image, of its best region and of the cached regions, after one step on the texts.

    A reconstruction: there is no code. Similarities are at the model's temperature everywhere, and centred per image
    before agreed labels are compared. Views are crops of nearly the whole image; the paper jitters colours instead.
    """

    Config = PuRFConfig
    default_template = "simple"
    reconstruction = True
    config: PuRFConfig

    def __init__(self, problem: Problem, config: PuRFConfig):
        super().__init__(problem, config)
        self.experts = text_experts(problem, self.name)  # (3, C, D)

    def start(self) -> State:
        _, labels, width = self.experts.shape
        slot = {"key": self.experts.new_zeros(width), "since": self.experts.new_zeros(())}
        memory = empty_memory("region", labels, self.config.capacity, **slot)
        bar = self.experts.new_zeros(labels)
        return {**memory, "text": self.experts.clone(), "bar": bar, "images": self.experts.new_zeros(())}

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c, text = self.config, state["text"]
        views, regions = (encoded.features(spec)[0] for spec in self.needs)  # (N, D), (1 + Q, D)
        regions = regions[1:]
        state["images"] += 1
        rows = self.logits(regions, self.text_of(text))  # (Q, C)
        shares = rows.softmax(dim=-1)
        state["bar"] += (shares.mean(dim=0) - state["bar"]) / state["images"]
        best, shown = shares.max(dim=-1)
        pure = best >= state["bar"][shown]  # (Q,)
        named = self.named(self.logits(views, self.text_of(text)))
        agreed = torch.zeros_like(named).index_fill_(0, shown[pure], True) & named  # (C,)
        keys, held = prototypes(state, "region")

        def loss(residual: Tensor) -> Tensor:
            moved = self.text_of(text + residual)
            whole = self.logits(views, moved)
            total = marginal_entropy(whole, select_confident(entropy(whole), c.select_ratio))
            if held.any():
                total = total + c.align * align(F.normalize(keys, dim=-1), moved, held)
            if agreed.any():
                scores = self.score(views[0], regions[pure], moved, keys, held)
                said = F.binary_cross_entropy_with_logits(scores - scores.mean(), agreed.to(scores.dtype))
                total = total + c.agreed * said
            return total

        (residual,) = stepped(loss, (text,), c.lr)
        scores = self.score(views[0], regions[pure], self.text_of(text + residual), keys, held)
        moved = F.normalize(text + residual, dim=-1)
        state["text"] = F.normalize((state["images"] - 1) * text + moved, dim=-1)
        for label in agreed.nonzero()[:, 0].tolist():
            own = (pure & (shown == label)).nonzero()[:, 0]
            doubt = entropy(rows[own])
            self.insert(state, label, float(doubt.min()), regions[own[int(doubt.argmin())]])
        return {"view": scores[None]}, state

    @staticmethod
    def text_of(experts: Tensor) -> Tensor:
        """Unit texts (C, D): the mean of the experts (3, C, D)."""
        return F.normalize(F.normalize(experts, dim=-1).mean(dim=0), dim=-1)

    def named(self, rows: Tensor) -> Tensor:
        """Mask (C,) of labels that are among the top labels of every view (N, C)."""
        likely = max(1, int(self.config.kappa * rows.shape[-1]))
        return (rows >= rows.topk(likely, dim=-1).values[:, -1:]).all(dim=0)

    def score(self, image: Tensor, pure: Tensor, text: Tensor, keys: Tensor, held: Tensor) -> Tensor:
        """Scores (C,) of an image (D,) and its pure regions (n, D); without regions, of the image only."""
        c = self.config
        whole: Tensor = self.logits(image[None], text)[0]
        if not len(pure):
            return whole
        best: Tensor = self.logits(pure, text).amax(dim=0)
        return (whole + best) / 2 + likeness(pure, keys, held, c.alpha, c.beta).amax(dim=0)

    def insert(self, state: State, label: int, doubt: float, region: Tensor) -> None:
        """Keep a region in an empty slot of its label, or replace the least confident; confidence decays with age."""
        age = state["images"] - state["region_since"][label]
        held = state["region_entropy"][label] * ((age - self.config.lifetime) / self.config.lifetime).exp()
        slot = int(held.argmax())
        if doubt * torch.tensor(-1.0).exp() < held[slot]:
            state["region_entropy"][label, slot] = doubt
            state["region_key"][label, slot] = region
            state["region_since"][label, slot] = state["images"]
