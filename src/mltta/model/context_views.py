"""The rows that a prompt is tuned on; with some prompts they change with the context."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mltta.images.specs import AnySpec
from mltta.model.encoded import Encoded


class Views:
    """Rows (B, n, D) that a loss uses: views, or captions instead. Independent of the context."""

    #: whether ``views(contexts)`` differs from ``features``
    read_context = False

    def __init__(self, features: Tensor):
        self._given = features

    @classmethod
    def of(cls, encoded: Encoded, specs: Sequence[AnySpec]) -> Views:
        """The views of some specs, in order."""
        return cls(torch.cat([encoded.features(spec) for spec in specs], dim=1))

    @property
    def features(self) -> Tensor:
        """Unit features (B, n, D) for the initial context."""
        return self._given

    def take(self, chosen: Tensor) -> Views:
        """Some of the views (B, n) of each image."""
        return Views(self._given.take_along_dim(chosen[..., None], dim=1))

    def clean(self, contexts: Tensor) -> Tensor:
        """Features (B, 1, D) of view 0, the clean one, for contexts (B, M, W)."""
        return self._given[:, :1]

    def __call__(self, contexts: Tensor) -> Tensor:
        """Unit features (B, n, D) for contexts (B, M, W)."""
        return self._given

    def pull_back(self, contexts: Tensor, gradients: Tensor) -> Tensor:
        """Backpropagate feature gradients (B, n, D) to contexts (B, M, W)."""
        return torch.zeros_like(contexts)
