"""PuRF: a cache of the regions that show a label purely, and texts nudged to what regions and whole agree on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.images.specs import AnySpec, ViewSpec
from mltta.methods.base import OnlineMethod, Problem, State, register
from mltta.methods.config import MOST_KEPT, MOST_VIEWS, Config, Rule
from mltta.methods.experts import text_experts
from mltta.methods.prototypes import align, likeness, prototypes, stepped
from mltta.methods.tda import empty_memory
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class PuRFConfig(Config):
    """The paper's values where it has them; alpha, beta, the rate and the sizes of views are ours, after DPE."""

    #: the clean view and those that show nearly all of an image; and random regions of it
    views: int = 64
    regions: int = 50
    #: the part of an image that views and regions at least show, and regions at most
    whole_from: float = 0.8
    region_from: float = 0.05
    region_to: float = 0.5
    #: the share of labels that a view may name, and of views that are confident
    kappa: float = 0.1
    select_ratio: float = 0.1
    #: what the labels agreed on, and keeping prototypes and texts together, weigh beside the entropy
    agreed: float = 0.2
    align: float = 0.5
    alpha: float = 6.0
    beta: float = 5.0
    lr: float = 6e-4
    #: regions kept for each label, and the images after which one counts as e times less sure
    capacity: int = 3
    lifetime: float = 1000.0

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        regions = ViewSpec(count=1 + self.regions, scale=(self.region_from, self.region_to))
        return ViewSpec(count=self.views, scale=(self.whole_from, 1.0)), regions

    def rules(self) -> dict[str, Rule]:
        share = "a share above 0, up to 1"
        return {
            **super().rules(),
            "views": (lambda: 1 <= self.views <= MOST_VIEWS, f"at least 1, at most {MOST_VIEWS}"),
            "regions": (lambda: 1 <= self.regions < MOST_VIEWS, f"at least 1, below {MOST_VIEWS}"),
            "whole_from": (lambda: 0 < self.whole_from <= 1, share),
            "region_from": (lambda: 0 < self.region_from <= self.region_to, "above 0, at most region_to"),
            "region_to": (lambda: self.region_to <= 1, share),
            "kappa": (lambda: 0 < self.kappa <= 1, share),
            "select_ratio": (lambda: 0 < self.select_ratio <= 1, share),
            "capacity": (lambda: 1 <= self.capacity <= MOST_KEPT, f"at least 1, at most {MOST_KEPT}"),
            "lifetime": (lambda: self.lifetime > 0, "a number above 0"),
        }


@register("purf", "a cache of regions that show a label purely, text experts nudged by them, online (2026)")
class PuRF(OnlineMethod):
    """Whole, best region and the likeness of a region to a label's cached ones, after one step on the texts.

    A reconstruction: there is no code. Similarities are at the model's temperature everywhere, and centred in each
    image before the labels agreed on are compared; views are crops of nearly all, where the paper jitters colours.
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
        """Unit texts (C, D): the middle of the experts (3, C, D)."""
        return F.normalize(F.normalize(experts, dim=-1).mean(dim=0), dim=-1)

    def named(self, rows: Tensor) -> Tensor:
        """The labels (C,) that are among the likeliest of every view (N, C)."""
        likely = max(1, int(self.config.kappa * rows.shape[-1]))
        return (rows >= rows.topk(likely, dim=-1).values[:, -1:]).all(dim=0)

    def score(self, image: Tensor, pure: Tensor, text: Tensor, keys: Tensor, held: Tensor) -> Tensor:
        """Scores (C,) of an image (D,) and its pure regions (n, D); without any the whole stands alone."""
        c, whole = self.config, self.logits(image[None], text)[0]
        if not len(pure):
            return whole
        best = self.logits(pure, text).amax(dim=0)
        return (whole + best) / 2 + likeness(pure, keys, held, c.alpha, c.beta).amax(dim=0)

    def insert(self, state: State, label: int, doubt: float, region: Tensor) -> None:
        """Keep a region in an empty slot of its label, or in the place of the least sure, which age makes of all."""
        age = state["images"] - state["region_since"][label]
        held = state["region_entropy"][label] * ((age - self.config.lifetime) / self.config.lifetime).exp()
        slot = int(held.argmax())
        if doubt * torch.tensor(-1.0).exp() < held[slot]:
            state["region_entropy"][label, slot] = doubt
            state["region_key"][label, slot] = region
            state["region_since"][label, slot] = state["images"]
