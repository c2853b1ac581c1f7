"""auto: all the labels of a photo for the price of a few passes, and scores that do not depend on the list."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from mltta.arrays import Array, clamp, like, max_by, on_grid, to_numpy
from mltta.captions.labelled import LabelledCaptions
from mltta.images.geometry import cover
from mltta.images.specs import AnySpec, LocalSpec
from mltta.methods.base import Emits, Method, Problem, register
from mltta.methods.calibration import Calibration
from mltta.methods.config import PART, SHARE, Config, local_spec, setting
from mltta.methods.evidence import SHARE_BITS, Vocabulary
from mltta.model.encoded import Encoded, LocalFeatures

log = logging.getLogger("mltta")
#: cells of the map that says where a label was found, each way
GRID = 16
#: looks by effort: side of the input relative to native resolution, and weight of what is seen there
LOOKS = {"fast": ((10 / 7, 1.0),), "best": ((1, 0.1), (10 / 7, 0.1), (16 / 7, 0.8))}


@dataclass(frozen=True)
class Constants(Config):
    """Measured once, for every dataset, list and backbone; docs/auto.md says where each comes from.

    They are no settings. Benchmarks and tests try others by a change of ``Auto.constants`` before a method is made.
    """

    sureness: float = setting(
        3.0, "a view counts by the share of its best everyday word to this power", least=0
    )
    background: float = setting(0.03, "weight of an everyday word beside a common object's 1", **SHARE)
    concepts: float = setting(0.5, "weight of the mean of a label's captions beside its words", least=0)
    least_vote: float = setting(0.003, "share of the captions that every label has", **PART)
    unheard: float = setting(0.1, "share of a label that no caption names", **SHARE)


@dataclass(frozen=True)
class AutoConfig(Config):
    """How many looks; everything else is measured and the same for all (`Constants`)."""

    effort: Literal["fast", "best"] = setting(
        "best", "fast: one input of 10/7 of the model's native size; best: also inputs of 1 and 16/7"
    )

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        return tuple(
            local_spec(side, scale, window=3, stride=1, clean=False) for scale, _ in LOOKS[self.effort]
        )


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
        self.c, self.words = self.constants, problem.words
        self.posterior = Vocabulary(self.words, self.logit_scale, self.c.background, self.c.concepts)
        self.calibration = Calibration.of(problem.backbone)
        common = to_numpy(self.words.common)
        self.offsets = like(self.calibration.offsets(self.words.called, common), self.words.features)
        if problem.backbone is not None:
            how = "tiles of the image" if problem.backbone.local is None else "the locations of its map"
            log.debug("auto looks at %s; its constants were measured with mini only", how)

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        return {"view": self.odds(self.evidence(encoded))}

    def evidence(self, encoded: Encoded) -> Array:
        """Evidence (B, columns, 3) of each column: logarithms of its mean and its best share, and of its captions'."""
        looks = [encoded.local(spec) for spec in self.needs]
        seen = [self.seen(look.windows) for look in looks]
        mean, best = (self.over_looks(found) for found in zip(*seen, strict=True))
        xp = array_namespace(mean)
        votes = self.heard(looks, mean) + self.c.least_vote
        return xp.stack([xp.log(clamp(one, 1e-7)) for one in (mean, best, votes)], axis=-1)

    def odds(self, evidence: Array) -> Array:
        """Log-odds (B, C) that each label is there: at least those of the labels below it in the tree."""
        odds = self.calibration(evidence) + self.offsets
        return max_by(odds[:, self.words.implied_by], self.words.label, len(self.words.own))

    @property
    def spoken_of(self) -> tuple[LabelledCaptions | None, Sequence[int]]:
        return self.words.captions, to_numpy(self.words.own).tolist()

    def where(self, encoded: Encoded) -> Array:
        """The posterior of the windows over each cell of a grid, the sure ones and the largest look counting more."""
        found = []
        for spec in self.needs:
            assert isinstance(spec, LocalSpec)
            shares, surest = self.posterior(encoded.local(spec).windows)  # (B, L, columns), (B, L, 1)
            p, weight = shares[..., self.words.own], surest**self.c.sureness
            xp, n = array_namespace(p), math.isqrt(p.shape[1])
            starts = [(1 - spec.window / spec.size) * i / max(1, n - 1) for i in range(n)]
            each = like(cover(starts, spec.window / spec.size, GRID).astype(np.float32), p)  # (n, GRID)
            maps = xp.permute_dims(xp.concat([weight * p, weight], axis=-1), (0, 2, 1))  # (B, C + 1, L)
            heat = each.T @ xp.reshape(maps, (*maps.shape[:2], n, n)) @ each  # (B, C + 1, GRID, GRID)
            found.append(heat[:, :-1] / clamp(heat[:, -1:], 1e-12))
        return self.over_looks(found)

    def over_looks(self, found: Sequence[Array]) -> Array:
        """The mean of what each look found, by its weight."""
        weights = [weight for _, weight in LOOKS[self.config.effort]]
        first, *others = (weight * each for weight, each in zip(weights, found, strict=True))
        return sum(others, first)

    def seen(self, views: Array) -> tuple[Array, Array]:
        """Shares (B, columns) in a look's views (B, L, D): their mean, the sure ones counting more, and the best."""
        (p, surest), xp = self.posterior(views), array_namespace(views)
        weight = surest**self.c.sureness
        weight = weight / clamp(xp.sum(weight, axis=1, keepdims=True), 1e-30)
        return xp.sum(on_grid(weight * p, SHARE_BITS), axis=1), xp.max(p, axis=1)

    def heard(self, looks: Sequence[LocalFeatures], like_: Array) -> Array:
        """The share (B, columns) of captions that mention each: half by the whole middle look, half by its quarters."""
        heard, xp = self.words.captions, array_namespace(like_)
        if heard is None:
            return self.c.unheard + 0 * like_
        parts = looks[len(looks) // 2].parts  # (B, 5, D)
        shares = heard.shares(xp.reshape(parts, (-1, parts.shape[-1])), self.logit_scale)
        shares = xp.reshape(shares, (*parts.shape[:2], -1))
        return xp.where(heard.spoken_of, (shares[:, 0] + xp.mean(shares[:, 1:], axis=1)) / 2, self.c.unheard)
