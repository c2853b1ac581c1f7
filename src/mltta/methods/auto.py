"""auto: all the labels of a photo for the price of a few passes, and scores that mean the same in every list."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from mltta.arrays import Array, clamp, like, normalize, sum_by
from mltta.images.geometry import cover
from mltta.images.specs import AnySpec, LocalSpec, require
from mltta.methods.base import Emits, Method, Problem, register
from mltta.methods.config import PART, SHARE, Config, local_spec, setting
from mltta.model.encoded import Encoded, LocalFeatures

log = logging.getLogger("mltta")
#: cells of the map that says where a label was found, each way
GRID = 16


@dataclass(frozen=True)
class Constants(Config):
    """Measured once, for every dataset, list and backbone; docs/auto.md says where each comes from.

    They are no settings. Benchmarks and tests try others by a change of ``Auto.constants`` before a method is made.
    """

    smaller: float = setting(0.1, "weight of the smallest of three looks", **SHARE)
    larger: float = setting(0.8, "weight of the largest of three looks", **SHARE)
    sureness: float = setting(3.0, "a view counts by its surest label to this power", least=0)
    peak: float = setting(0.65, "weight of the best view beside the mean of all", **SHARE)
    background: float = setting(0.05, "weight of an everyday word beside a label's 1", least=0)
    concepts: float = setting(0.5, "weight of the mean of a label's captions beside its words", least=0)
    votes: float = setting(0.44, "power of what captions say", least=0)
    least_vote: float = setting(0.003, "share of the captions that every label has", **PART)
    unheard: float = setting(0.1, "share of a label that no caption names", **SHARE)
    silence: float = setting(0.22, "if the best label's share is less, all labels are less likely", **PART)
    length: float = setting(16.0, "of R labels in a list, each has 1 + R / length rivals", above=0)
    longest: int = setting(100, "beyond this length of a list, R grows with the sixth root", least=1)
    # log-odds of a label: slope z + bend max(z - knee, 0) + offset; fitted: a score of 0.7 is right 7 times in 10
    slope: float = setting(0.94, "slope of the calibration", above=0)
    bend: float = setting(0.8, "what the slope gains beyond the knee", least=0)
    knee: float = setting(-1.5, "evidence at which the slope changes")
    offset: float = setting(0.15, "log-odds without evidence")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.smaller + self.larger <= 1, "smaller and larger must be at most 1 together")


@dataclass(frozen=True)
class AutoConfig(Config):
    """How many looks; everything else is measured and the same for all (`Constants`)."""

    effort: Literal["fast", "best"] = setting(
        "best", "fast: one input of 10/7 of the model's native size; best: also inputs of 1 and 16/7"
    )

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        scales = (10 / 7,) if self.effort == "fast" else (1, 10 / 7, 16 / 7)
        return tuple(local_spec(side, scale, window=3, stride=1, clean=False) for scale in scales)


@register("auto", "recommended, the default: looks at parts of the image, in a few forward passes")
class Auto(Method):
    """Every window of the feature map says what it shows; the sure ones count, and captions are heard. Ours, no paper.

    No prompt is tuned and nothing is kept between images. docs/auto.md explains each part and has the ablation.
    """

    Config = AutoConfig
    emits: Emits = "odds"
    array_api = True
    requires = frozenset({"words"})
    default_template = "simple"
    constants: ClassVar[Constants] = Constants()
    config: AutoConfig

    def __init__(self, problem: Problem, config: AutoConfig):
        super().__init__(problem, config)
        assert problem.words is not None  # made because it is required
        self.c, self.words, self.captions = self.constants, problem.words, problem.captions
        if (
            self.captions is not None
        ):  # each word of a label moves towards the mean of the captions that name it
            words, heard = self.words, self.captions
            moved = normalize(words.features + self.c.concepts * heard.means[words.owner])
            spoken_of = heard.spoken_of[words.owner][:, None]
            moved = array_namespace(moved).where(spoken_of, moved, words.features)
            self.words = replace(words, features=moved)
        if problem.backbone is not None:
            how = "tiles of the image" if problem.backbone.local is None else "the locations of its map"
            log.debug("auto looks at %s; its constants were measured with mini only", how)

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        return {"view": self.odds(self.evidence(encoded))}

    def evidence(self, encoded: Encoded) -> Array:
        """Evidence (B, C), a logarithm, before the calibration."""
        looks = [encoded.local(spec) for spec in self.needs]
        seen = [self.seen(look.windows) for look in looks]
        mean, best = (self.over_looks(found) for found in zip(*seen, strict=True))
        return self.weighed(mean, best, self.heard(looks))

    def where(self, encoded: Encoded) -> Array:
        """The posterior of the windows over each cell of a grid, the sure ones and the largest look counting more."""
        found = []
        for spec in self.needs:
            assert isinstance(spec, LocalSpec)
            p, weight = self.posterior(encoded.local(spec).windows)  # (B, L, C), (B, L, 1)
            xp, n = array_namespace(p), math.isqrt(p.shape[1])
            starts = [(1 - spec.window / spec.size) * i / max(1, n - 1) for i in range(n)]
            each = like(cover(starts, spec.window / spec.size, GRID).astype(np.float32), p)  # (n, GRID)
            maps = xp.permute_dims(xp.concat([weight * p, weight], axis=-1), (0, 2, 1))  # (B, C + 1, L)
            heat = each.T @ xp.reshape(maps, (*maps.shape[:2], n, n)) @ each  # (B, C + 1, GRID, GRID)
            found.append(heat[:, :-1] / clamp(heat[:, -1:], 1e-12))
        return self.over_looks(found)

    def over_looks(self, found: Sequence[Array]) -> Array:
        """The mean of what each look found, the largest counting most."""
        c = self.c
        counts = (c.smaller, 1 - c.smaller - c.larger, c.larger) if len(found) > 1 else (1.0,)
        first, *others = (count * each for count, each in zip(counts, found, strict=True))
        return sum(others, first)

    def posterior(self, views: Array) -> tuple[Array, Array]:
        """Shares (..., C) of the labels in each view (..., D), among them and everyday words; its weight (..., 1)."""
        words, scale, xp = self.words, self.logit_scale, array_namespace(views)
        # the constant keeps exponentials in range, and cancels
        label = xp.exp(scale * (views @ words.features.T - 0.4)) * words.share
        mass = sum_by(label, words.owner, len(self.text))
        other = xp.sum(xp.exp(scale * (views @ words.background.T - 0.4)), axis=-1, keepdims=True)
        every = xp.sum(mass, axis=-1, keepdims=True) + self.c.background * other
        p = mass / clamp(every, 1e-30)
        return p, xp.max(p, axis=-1, keepdims=True) ** self.c.sureness

    def seen(self, views: Array) -> tuple[Array, Array]:
        """The posteriors (B, C) of a look's views (B, L, D): their mean, the sure ones counting more, and the best."""
        (p, weight), xp = self.posterior(views), array_namespace(views)
        return xp.sum(weight * p, axis=1) / clamp(xp.sum(weight, axis=1), 1e-30), xp.max(p, axis=1)

    def heard(self, looks: Sequence[LocalFeatures]) -> Array | None:
        """The share (B, C) of captions that name each label: half by the whole middle look, half by its quarters."""
        if self.captions is None:
            return None
        parts = looks[len(looks) // 2].parts  # (B, 5, D)
        xp = array_namespace(parts)
        shares = self.captions.shares(xp.reshape(parts, (-1, parts.shape[-1])), self.logit_scale)
        shares = xp.reshape(shares, (*parts.shape[:2], -1))
        return (shares[:, 0] + xp.mean(shares[:, 1:], axis=1)) / 2

    def weighed(self, mean: Array, best: Array, heard: Array | None) -> Array:
        """Evidence (B, C) from what the views, together and at best, and captions say of each label (B, C)."""
        c, xp, count = self.c, array_namespace(mean), mean.shape[-1]
        mean, best = (xp.log(clamp(one, 1e-7)) for one in (mean, best))
        rivals = min(count, c.longest) * max(1.0, count / c.longest) ** (1 / 6)
        z = mean + c.peak * (best - mean) + math.log(1 + rivals / c.length)
        if heard is None or self.captions is None:
            return z + c.votes * math.log(c.unheard + c.least_vote)
        named = self.captions.spoken_of
        heard = xp.where(named, heard, c.unheard)
        z = z + c.votes * xp.log(heard + c.least_vote)
        loudest = xp.max(heard, axis=-1, keepdims=True) + c.least_vote
        return z + xp.where(named, xp.log(clamp(loudest / c.silence, high=1)), 0.0)

    def odds(self, evidence: Array) -> Array:
        """Log-odds (B, C) that each label is there."""
        return self.c.slope * evidence + self.c.bend * clamp(evidence - self.c.knee, 0) + self.c.offset
