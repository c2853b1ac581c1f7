"""auto: all the labels of a photo for the price of a few passes, and scores that mean the same in every list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mltta.images.views import AnySpec
from mltta.methods.base import Emits, Method, Problem, register
from mltta.methods.config import Config, Rule, local_spec
from mltta.model.encoded import Encoded

#: words are compared in pieces of so many similarities
AT_ONCE = 2**26


@dataclass(frozen=True)
class AutoConfig(Config):
    """One set of constants for every dataset, list and backbone; docs/auto.md says where each comes from."""

    #: "fast" looks once, at 10/7 of the model's own size, "best" a second time at 16/7
    effort: Literal["fast", "best"] = "best"
    #: what the words of the background weigh beside the labels asked for
    background: float = 0.1
    #: log-odds of a label: of its share of the confident views, of its share of similar captions, and the rest
    of_views: float = 0.85
    of_captions: float = 0.5
    offset: float = 1.0
    #: keeps a label that captions hardly name from a veto
    least_share: float = 0.003

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        near = local_spec(side, 10 / 7, window=3, stride=1, clean=False)
        return (near,) if self.effort == "fast" else (near, local_spec(side, 16 / 7, 4, 2, clean=False))

    def rules(self) -> dict[str, Rule]:
        return {
            **super().rules(),
            "background": (lambda: self.background >= 0, "0 or more"),
            "least_share": (lambda: self.least_share > 0, "a share above 0"),
        }


@register(
    "auto", "local views, synonyms, a background of everyday words and captions: all labels, a few passes"
)
class Auto(Method):
    """Every window of the feature map says what it shows; the sure ones count, and captions are heard. Ours, no paper.

    No prompt is tuned and nothing is kept between images. docs/auto.md explains each part and has the ablation.
    """

    Config = AutoConfig
    uses_words = True
    default_template = "simple"
    config: AutoConfig

    def __init__(self, problem: Problem, config: AutoConfig):
        super().__init__(problem, config)
        assert problem.words is not None  # made because of ``uses_words``
        self.words = problem.words
        self.captions = problem.captions

    @property
    def emits(self) -> Emits:
        return "odds"

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        views = [encoded.features(spec) for spec in self.needs]  # each (B, 1 + L, D), the whole first
        shares = torch.stack([self.sure_share(scale[:, 1:]) for scale in views]).mean(dim=0)  # (B, C)
        return {"view": self.odds(shares, self.heard(views[0][:, 0]))}

    def posterior(self, views: Tensor) -> Tensor:
        """What each view (..., D) shows: shares (..., C) of the labels' words among those and the background."""
        w, c = self.words, self.config
        # the constant keeps exponentials in range, and cancels
        label = (self.logit_scale * (views @ w.features.T - 0.5)).exp() * w.share
        mass = torch.zeros(*views.shape[:-1], len(self.text), device=views.device).index_add_(
            -1, w.owner, label
        )
        other = (self.logit_scale * (views @ w.background.T - 0.5)).exp().sum(dim=-1, keepdim=True)
        return mass / (mass.sum(dim=-1, keepdim=True) + c.background * other).clamp(min=1e-30)

    def sure_share(self, views: Tensor) -> Tensor:
        """The posterior (B, C) of the views (B, L, D) of one scale; a view weighs as much as it is sure of a label."""
        p = self.posterior(views)
        weight = p.amax(dim=-1, keepdim=True)
        return (weight * p).sum(dim=1) / weight.sum(dim=1).clamp(min=1e-30)

    def heard(self, whole: Tensor) -> Tensor | None:
        """The share (B, C) of captions that name each label, by their likeness to the whole image (B, D)."""
        return None if self.captions is None else self.captions.shares(whole, self.logit_scale)

    def odds(self, shares: Tensor, heard: Tensor | None) -> Tensor:
        """Log-odds (B, C) that each label is there."""
        c = self.config
        odds = c.of_views * shares.clamp(min=1e-7).log() + c.offset
        if heard is not None:
            odds = odds + c.of_captions * (heard + c.least_share).log()
        return odds
