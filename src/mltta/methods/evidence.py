"""What views say of the columns of `Words`: each competes with the fixed vocabulary only, with exact sums."""

from __future__ import annotations

from typing import NamedTuple

from array_api_compat import array_namespace

from mltta.arrays import Array, clamp, normalize, on_grid, sum_by
from mltta.methods.words import BITS, Words

#: bits of a share: the vocabulary's shares of a view add up to 1, so that any sum of them is exact in float32
SHARE_BITS = 24


class Posterior(NamedTuple):
    """Of views (..., D)."""

    shares: Array  # (..., columns) of each column among itself and the vocabulary
    surest: Array  # (..., 1) share of the best word of the vocabulary


class Vocabulary:
    """The columns' words, ready to be compared with views."""

    def __init__(self, words: Words, scale: float, background: float, concepts: float):
        """Args:
        scale: the logit scale.
        background: weight of a column that is not a common object.
        concepts: weight of the mean of a column's captions beside its words.
        """
        self.words, self.scale, features = words, scale, words.features
        if (
            words.captions is not None
        ):  # each word moves towards the mean of the captions that mention its column
            heard = words.captions.means[words.owner]
            spoken_of = words.captions.spoken_of[words.owner][:, None]
            xp = array_namespace(features)
            features = xp.where(spoken_of, normalize(features + concepts * heard), features)
        self.features = on_grid(features, BITS)
        self.count = len(words.called)
        self.weight = background + (1 - background) * words.common  # (columns,)

    def __call__(self, views: Array) -> Posterior:
        """The posterior of views (..., D)."""
        words, xp = self.words, array_namespace(views)
        # the constant keeps exponentials in range, and cancels
        each = xp.exp(self.scale * (on_grid(views, BITS) @ self.features.T - 0.4)) * words.share
        mass = sum_by(each, words.owner, self.count)  # (..., columns)
        mass = self.weight * mass
        rivals = mass[..., : words.rivals]
        total = clamp(xp.sum(rivals, axis=-1, keepdims=True), 1e-30)
        rivals = on_grid(rivals / total, SHARE_BITS)
        same = sum_by(rivals[..., words.same], words.column, self.count)
        mass = mass / total
        shares = mass / (mass + clamp(1 - same, 2.0**-20))
        return Posterior(shares, xp.max(rivals, axis=-1, keepdims=True))
