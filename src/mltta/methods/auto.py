"""auto: all the labels of a photo for the price of a few passes, and scores that mean the same in every list."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mltta.images.geometry import cover
from mltta.images.specs import AnySpec, LocalSpec
from mltta.methods.base import Emits, Method, Problem, register
from mltta.methods.config import Config, Rule, local_spec
from mltta.methods.words import in_context
from mltta.model.encoded import Encoded, LocalFeatures

log = logging.getLogger("mltta")
#: cells of the map that says where a label was found, each way
GRID = 16


@dataclass(frozen=True)
class AutoConfig(Config):
    """One set of constants for every dataset, list and backbone; docs/auto.md says where each comes from."""

    #: "fast" looks once, at 10/7 of the model's own size; "best" at that size itself and at 16/7, too
    effort: Literal["fast", "best"] = "best"
    #: what the smallest and the largest of three looks count, of 1
    smaller: float = 0.1
    larger: float = 0.8
    #: a view weighs as much as it is sure of a label, to this power; and what the best view counts beside their mean
    sureness: float = 3.0
    peak: float = 0.65
    #: what a word of the background weighs beside a label's 1
    background: float = 0.05
    #: what the mean of the captions that name a label weighs beside each of its words
    concepts: float = 0.5
    #: the power of what captions say; a share that every label has; and that of one which no caption names
    votes: float = 0.44
    least_vote: float = 0.003
    unheard: float = 0.1
    #: where captions speak less than this of the best label of the list, all of them are less likely
    silence: float = 0.22
    #: a label has 1 + R / length rivals; R is how long the list is, beyond longest it grows with the sixth root
    length: float = 16.0
    longest: int = 100
    #: log-odds of a label: slope z + bend max(z - knee, 0) + offset; fitted: a score of 0.7 is right 7 times in 10
    slope: float = 0.83
    bend: float = 0.88
    knee: float = -1.5
    offset: float = -0.12

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        scales = (10 / 7,) if self.effort == "fast" else (1, 10 / 7, 16 / 7)
        return tuple(local_spec(side, scale, window=3, stride=1, clean=False) for scale in scales)

    def rules(self) -> dict[str, Rule]:
        return {
            **super().rules(),
            "smaller": (lambda: 0 <= self.smaller <= 1, "a share from 0 to 1"),
            "larger": (lambda: 0 <= self.larger <= 1 - self.smaller, "a share from 0 to what smaller leaves"),
            "sureness": (lambda: self.sureness >= 0, "0 or more"),
            "peak": (lambda: 0 <= self.peak <= 1, "a share from 0 to 1"),
            "background": (lambda: self.background >= 0, "0 or more"),
            "concepts": (lambda: self.concepts >= 0, "0 or more"),
            "votes": (lambda: self.votes >= 0, "0 or more"),
            "least_vote": (lambda: 0 < self.least_vote <= 1, "a share above 0, up to 1"),
            "unheard": (lambda: 0 <= self.unheard <= 1, "a share from 0 to 1"),
            "silence": (lambda: 0 < self.silence <= 1, "a share above 0, up to 1"),
            "length": (lambda: self.length > 0, "a number above 0"),
            "longest": (lambda: self.longest >= 1, "at least 1"),
            "slope": (lambda: self.slope > 0, "a number above 0"),
            "bend": (lambda: self.bend >= 0, "0 or more"),
        }


@register(
    "auto", "the default: windows of the feature map, synonyms, everyday words beside the labels, captions"
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
        self.words, self.captions = problem.words, problem.captions
        if self.captions is not None:
            self.words = in_context(self.words, self.captions, config.concepts)
        if problem.backbone is not None:
            how = "tiles of the image" if problem.backbone.local is None else "the locations of its map"
            log.debug("auto looks at %s; its constants were measured with mini only", how)

    @property
    def emits(self) -> Emits:
        return "odds"

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        scales = [encoded.local(spec) for spec in self.needs]
        seen = self.over_scales([self.seen(look.windows) for look in scales])
        return {"view": self.odds(self.evidence(seen, self.heard(scales)))}

    def where(self, encoded: Encoded) -> Tensor:
        """The posterior of the windows over each cell of a grid, the sure ones and the largest look counting more."""
        found = []
        for spec in self.needs:
            assert isinstance(spec, LocalSpec)
            p = self.posterior(encoded.local(spec).windows)  # (B, L, C)
            n = math.isqrt(p.shape[1])
            starts = [(1 - spec.window / spec.size) * i / max(1, n - 1) for i in range(n)]
            each = torch.from_numpy(cover(starts, spec.window / spec.size, GRID)).to(p)  # (n, GRID)
            weight = p.amax(dim=-1, keepdim=True) ** self.config.sureness
            both = torch.cat([weight * p, weight], dim=-1).view(len(p), n, n, -1)
            heat = torch.einsum("byxc,yh,xw->bchw", both, each, each)
            found.append(heat[:, :-1] / heat[:, -1:].clamp(min=1e-12))
        return self.over_scales(found)

    def over_scales(self, found: Sequence[Tensor]) -> Tensor:
        """The mean of what each look found, the largest counting most."""
        c = self.config
        counts = (c.smaller, 1 - c.smaller - c.larger, c.larger) if len(found) > 1 else (1.0,)
        return torch.stack([count * each for count, each in zip(counts, found, strict=True)]).sum(dim=0)

    def posterior(self, views: Tensor) -> Tensor:
        """What each view (..., D) shows: the shares (..., C) of the labels, among them and the background."""
        words, scale = self.words, self.logit_scale
        # the constant keeps exponentials in range, and cancels
        label = (scale * (views @ words.features.T - 0.4)).exp() * words.share
        mass = views.new_zeros(*views.shape[:-1], len(self.text)).index_add_(-1, words.owner, label)
        other = (scale * (views @ words.background.T - 0.4)).exp().sum(dim=-1, keepdim=True)
        return mass / (mass.sum(dim=-1, keepdim=True) + self.config.background * other).clamp(min=1e-30)

    def seen(self, views: Tensor) -> Tensor:
        """The posteriors (2, B, C) of a look's views (B, L, D): their mean, the sure ones counting, and the best."""
        p = self.posterior(views)
        weight = p.amax(dim=-1, keepdim=True) ** self.config.sureness
        mean = (weight * p).sum(dim=1) / weight.sum(dim=1).clamp(min=1e-30)
        return torch.stack([mean, p.amax(dim=1)])

    def heard(self, scales: Sequence[LocalFeatures]) -> Tensor | None:
        """The share (B, C) of captions that name each label: half by the whole middle look, half by its quarters."""
        if self.captions is None:
            return None
        parts = scales[len(scales) // 2].parts  # (B, 5, D)
        heard = self.captions.shares(parts.flatten(0, 1), self.logit_scale).view(*parts.shape[:2], -1)
        return (heard[:, 0] + heard[:, 1:].mean(dim=1)) / 2

    def evidence(self, seen: Tensor, heard: Tensor | None) -> Tensor:
        """Evidence (B, C), a logarithm, from what views (2, B, C) and captions (B, C) say of each label."""
        c = self.config
        mean, best = seen.clamp(min=1e-7).log().unbind()
        count = seen.shape[-1]
        rivals = min(count, c.longest) * max(1.0, count / c.longest) ** (1 / 6)
        z = mean.lerp(best, c.peak) + math.log(1 + rivals / c.length)
        if heard is None or self.captions is None:
            return z + c.votes * math.log(c.unheard + c.least_vote)
        named = self.captions.spoken_of
        heard = heard.where(named, c.unheard)
        z = z + c.votes * (heard + c.least_vote).log()
        silence = ((heard.amax(dim=-1, keepdim=True) + c.least_vote) / c.silence).clamp(max=1).log()
        return z + silence.where(named, 0.0)

    def odds(self, evidence: Tensor) -> Tensor:
        """Log-odds (B, C) that each label is there."""
        c = self.config
        return c.slope * evidence + c.bend * (evidence - c.knee).clamp(min=0) + c.offset
