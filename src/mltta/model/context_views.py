"""The rows that a prompt is tuned on, which under some prompts change with the context."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mltta.images.specs import AnySpec
from mltta.model.encoded import Encoded


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
