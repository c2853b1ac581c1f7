"""Encoded views: what every method is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL.Image import Image

from mltta.arrays import Array
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.images.views import Pixels, Preprocess, render_views

#: renders chosen views of one image again, the same to the bit, as some model wants them: pixels (n, 3, S, S)
Look: TypeAlias = Callable[[AnySpec, Preprocess, Sequence[int]], Pixels]


def look_at(read: Callable[[], Image], *, seed: int, name: str) -> Look:
    """How to render views of an image again, which is read when that is asked for."""

    def look(spec: AnySpec, preprocess: Preprocess, views: Sequence[int]) -> Pixels:
        if isinstance(spec, LocalSpec):
            raise ConfigError("windows of a feature map cannot be looked at again one by one: use crops")
        return render_views(read(), spec, preprocess, seed=seed, indices=views, name=name)

    return look


class LocalFeatures(NamedTuple):
    """Unit features of local views, each part of the rows of `mltta.model.local` by its name."""

    clean: Array  # the clean view (B, 1, D), of specs that have one
    parts: Array  # the whole input and its quarters (B, 5, D)
    windows: Array  # the windows (B, L, D), row by row


class Encoded:
    """Features of the views of B images; 16 views are the first 16 of 64.

    The few methods that look again, with a teacher or with a prompt inside the image tower, ask for ``pixels``.
    """

    def __init__(self, features: Mapping[AnySpec, Array], looks: Sequence[Look] = ()):
        """Args:
        features: (B, N, D) for each spec.
        looks: for each image how to render its views again; none where no method needs to.
        """
        self._features, self._looks = dict(features), looks

    def features(self, spec: AnySpec) -> Array:
        """Unit features (B, N, D) of the views that ``spec`` asks for."""
        for have, features in self._features.items():
            if have.covers(spec):
                return features if isinstance(spec, LocalSpec) else features[:, : spec.count]
        raise ConfigError(f"these views were not encoded: {spec}")

    def local(self, spec: AnySpec) -> LocalFeatures:
        """The features of local views by the part of the image that they show."""
        assert isinstance(spec, LocalSpec), spec
        rows, first = self.features(spec), int(spec.clean)
        behind = first + LocalSpec.PARTS
        return LocalFeatures(rows[:, :first], rows[:, first:behind], rows[:, behind:])

    def pixels(self, spec: AnySpec, preprocess: Preprocess, views: Array) -> Pixels:
        """Pixels (B, n, 3, S, S) of the chosen views (B, n) of each image, rendered again."""
        if len(self._looks) != len(self):
            raise ConfigError("this method looks at the images again, and only their features are here")
        chosen = zip(self._looks, views.tolist(), strict=True)
        return np.stack([look(spec, preprocess, own) for look, own in chosen])

    def __len__(self) -> int:
        return len(next(iter(self._features.values())))

    def __getitem__(self, image: int) -> Encoded:
        """One image of the batch, as a batch of one."""
        one = slice(image, image + 1)
        return Encoded({spec: features[one] for spec, features in self._features.items()}, self._looks[one])


def union(specs: Iterable[AnySpec]) -> list[AnySpec]:
    """The fewest specs that cover all of them, so that several methods share one encoding."""
    kept: list[AnySpec] = []
    for spec in sorted(set(specs), key=lambda spec: (-spec.price(1), repr(spec))):
        if not any(have.covers(spec) for have in kept):
            kept.append(spec)
    return kept
