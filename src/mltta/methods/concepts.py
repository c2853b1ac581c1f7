"""Class concepts: a label is the mean of the captions that name it, an image a mean of captions. No gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.images.specs import AnySpec
from mltta.methods.base import Method, Problem, register
from mltta.methods.config import MOST_KEPT, Config, local_spec, setting
from mltta.model.encoded import Encoded


@dataclass(frozen=True)
class ConceptsConfig(Config):
    """Constants that the paper leaves to validation, chosen on the dev sets (docs/methods.md)."""

    nearest: int = setting(256, "captions averaged per view in the first round", least=1, most=MOST_KEPT)
    shrink: int = setting(4, "factor by which each round reduces the number of captions", least=1)
    rounds: int = setting(1, "rounds of averaging over captions", least=0, most=16)
    weight: float = setting(0.25, "weight of the concepts' cosines relative to the prompts'")
    scale: float = setting(2.0, "input size of local views, times the native size", least=4 / 7, most=8)

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        return (local_spec(side, self.scale),)


@register("concepts", "labels as the mean of their captions, images seen through captions (2024)")
class Concepts(Method):
    """Cosines of image and windows with the prompts, plus those of their caption means with the concepts.

    A reconstruction of Class Concept Representation (training-free, two versions on OpenReview, no code). It does not
    detail how its rounds group captions; here each round averages over fewer captions, the nearest ones.
    """

    Config = ConceptsConfig
    branch_names = ["text", "concepts"]
    requires = frozenset({"captions"})
    reconstruction = True
    config: ConceptsConfig
    captions: LabelledCaptions

    def __init__(self, problem: Problem, config: ConceptsConfig):
        super().__init__(problem, config)
        named = self.captions.spoken_of[:, None]
        #: (C, D) unit features; a label that no caption names uses its prompt
        self.concepts = torch.where(named, self.captions.means, self.text.features)

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        found = encoded.local(self.needs[0])
        views = torch.cat([found.clean, found.windows], dim=1)  # (B, 1 + L, D)
        scale = self.logit_scale
        return {
            "text": scale * self.pooled(views @ self.text.features.T),
            "concepts": self.config.weight * scale * self.pooled(self.heard(views) @ self.concepts.T),
        }

    def heard(self, views: Tensor) -> Tensor:
        """Views (B, R, D) as weighted means of their nearest captions, round by round; unit vectors."""
        count = min(self.config.nearest, len(self.captions))
        for _ in range(self.config.rounds):
            near = self.captions.embeddings[self.captions.nearest(views, max(1, count))]  # (B, R, n, D)
            weight = (self.logit_scale * near @ views[..., None]).softmax(dim=-2)  # (B, R, n, 1)
            views = F.normalize((weight * near).sum(dim=-2), dim=-1)
            count //= self.config.shrink
        return views

    def pooled(self, cosines: Tensor) -> Tensor:
        """Mean of the whole image's cosines (B, C) and the windows', weighted towards the windows that match best."""
        whole, windows = cosines[:, 0], cosines[:, 1:]
        local = ((self.logit_scale * windows).softmax(dim=1) * windows).sum(dim=1)
        return (whole + local) / 2
