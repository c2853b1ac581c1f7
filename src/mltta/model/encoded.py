"""Encoded views: the input of every method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL.Image import Image

from mltta.arrays import Array
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.images.views import Pixels, Preprocess, render_views

#: renders chosen views of one image again, bit-identical, for a model's preprocessing: pixels (n, 3, S, S)
Look: TypeAlias = Callable[[AnySpec, Preprocess, Sequence[int]], Pixels]


def look_at(read: Callable[[], Image], *, seed: int, name: str) -> Look:
    """Create a function that renders views of an image again; the image is read on each call."""

    def look(spec: AnySpec, preprocess: Preprocess, views: Sequence[int]) -> Pixels:
        if isinstance(spec, LocalSpec):
            raise ConfigError("single windows of a feature map cannot be rendered again: use crops")
        return render_views(read(), spec, preprocess, seed=seed, indices=views, name=name)

    return look


class LocalFeatures(NamedTuple):
    """Unit features of local views, by part; rows are in the order of `mltta.model.local`."""

    clean: Array  # the clean view (B, 1, D), if the spec has one
    parts: Array  # the whole input and its quarters (B, 5, D)
    windows: Array  # the windows (B, L, D), row by row


class Encoded:
    """Features of the views of B images; 16 views are the first 16 of 64.

    A few methods, with a teacher or a prompt inside the image tower, also use ``pixels``.
    """

    def __init__(self, features: Mapping[AnySpec, Array], looks: Sequence[Look] = ()):
        """Args:
        features: (B, N, D) for each spec.
        looks: for each image, a function that renders its views again; empty if no method needs it.
        """
        self._features, self._looks = dict(features), looks

    def features(self, spec: AnySpec) -> Array:
        """Unit features (B, N, D) of the views of ``spec``."""
        for have, features in self._features.items():
            if have.covers(spec):
                return features if isinstance(spec, LocalSpec) else features[:, : spec.count]
        raise ConfigError(f"these views were not encoded: {spec}")

    def local(self, spec: AnySpec) -> LocalFeatures:
        """The features of local views, by part of the image."""
        assert isinstance(spec, LocalSpec), spec
        rows, first = self.features(spec), int(spec.clean)
        behind = first + LocalSpec.PARTS
        return LocalFeatures(rows[:, :first], rows[:, first:behind], rows[:, behind:])

    def pixels(self, spec: AnySpec, preprocess: Preprocess, views: Array) -> Pixels:
        """Pixels (B, n, 3, S, S) of chosen views (B, n) of each image, rendered again."""
        if len(self._looks) != len(self):
            raise ConfigError("this method needs the images, but only their features are available")
        chosen = zip(self._looks, views.tolist(), strict=True)
        return np.stack([look(spec, preprocess, own) for look, own in chosen])

    def __len__(self) -> int:
        return len(next(iter(self._features.values())))

    def __getitem__(self, image: int) -> Encoded:
        """One image, as a batch of one."""
        one = slice(image, image + 1)
        return Encoded({spec: features[one] for spec, features in self._features.items()}, self._looks[one])


def union(specs: Iterable[AnySpec]) -> list[AnySpec]:
    """Merge specs into the fewest that cover all of them, so that methods share one encoding."""
    kept: list[AnySpec] = []
    for spec in sorted(set(specs), key=lambda spec: (-spec.price(1), repr(spec))):
        if not any(have.covers(spec) for have in kept):
            kept.append(spec)
    return kept
