"""Encoded views: what every method is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import torch
from PIL.Image import Image
from torch import Tensor

from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.images.views import Preprocess, render_views


class Look(Protocol):
    """Renders chosen views of one image again, the same to the bit, as some model wants them."""

    def __call__(self, spec: AnySpec, preprocess: Preprocess, views: Sequence[int]) -> Tensor:
        """Pixels (n, 3, S, S)."""


def look_at(read: Callable[[], Image], *, seed: int, name: str) -> Look:
    """How to render views of an image again, which is read when that is asked for."""

    def look(spec: AnySpec, preprocess: Preprocess, views: Sequence[int]) -> Tensor:
        if isinstance(spec, LocalSpec):
            raise ConfigError("windows of a feature map cannot be looked at again one by one: use crops")
        return render_views(read(), spec, preprocess, seed=seed, indices=views, name=name)

    return look


class Encoded:
    """Features of the views of B images; 16 views are the first 16 of 64.

    The few methods that look again, with a teacher or with a prompt inside the image tower, ask for ``pixels``.
    """

    def __init__(self, features: Mapping[AnySpec, Tensor], looks: Sequence[Look] = ()):
        """Args:
        features: (B, N, D) for each spec.
        looks: for each image how to render its views again; none where no method needs to.
        """
        self._features = dict(features)
        self._looks = looks

    def features(self, spec: AnySpec) -> Tensor:
        """Unit features (B, N, D) of the views that ``spec`` asks for."""
        for have, features in self._features.items():
            if have.covers(spec):
                return features if isinstance(spec, LocalSpec) else features[:, : spec.count]
        raise ConfigError(f"these views were not encoded: {spec}")

    def pixels(self, spec: AnySpec, preprocess: Preprocess, views: Tensor) -> Tensor:
        """Pixels (B, n, 3, S, S) of the chosen views (B, n) of each image, rendered again."""
        if len(self._looks) != len(self):
            raise ConfigError("this method looks at the images again, and only their features are here")
        chosen = zip(self._looks, views.tolist(), strict=True)
        return torch.stack([look(spec, preprocess, own) for look, own in chosen])

    def __len__(self) -> int:
        return next(iter(self._features.values())).shape[0]

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


class Views:
    """Rows (B, n, D) that a loss looks at: views, or captions in their place. The same under every context."""

    #: whether ``views(contexts)`` differs from ``features``
    read_context = False

    def __init__(self, features: Tensor):
        self._given = features

    @classmethod
    def of(cls, encoded: Encoded, specs: Sequence[AnySpec]) -> Views:
        """The views of some specs, one spec after another."""
        return cls(torch.cat([encoded.features(spec) for spec in specs], dim=1))

    @property
    def features(self) -> Tensor:
        """Unit features (B, n, D) under the initial context."""
        return self._given

    def take(self, chosen: Tensor) -> Views:
        """Some of the views (B, n) of each image."""
        return Views(self._given.take_along_dim(chosen[..., None], dim=1))

    def clean(self, contexts: Tensor) -> Tensor:
        """Features (B, 1, D) of view 0, the clean one, under contexts (B, M, W)."""
        return self._given[:, :1]

    def __call__(self, contexts: Tensor) -> Tensor:
        """Unit features (B, n, D) under contexts (B, M, W)."""
        return self._given

    def pull_back(self, contexts: Tensor, gradients: Tensor) -> Tensor:
        """Gradients (B, n, D) of the features at contexts (B, M, W), brought back to the contexts."""
        return torch.zeros_like(contexts)
