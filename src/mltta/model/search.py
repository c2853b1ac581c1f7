"""The captions most similar to each view: a full scan, exact."""

from __future__ import annotations

import torch
from torch import Tensor

# Similarities held at once, and vectors that are compared at once.
BYTES, PIECE = 2**30, 2**18


class Search:
    """Nearest neighbours by inner product among fixed unit vectors (K, D)."""

    def __init__(self, base: Tensor):
        self.base = base

    def __call__(self, features: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Similarities and indices (..., n) of the nearest, nearest first."""
        n = min(n, self.base.shape[0])
        rows = features.reshape(-1, features.shape[-1])
        parts = [self._find(part, n) for part in torch.split(rows, self._at_once())]
        values, indices = (torch.cat(kind).view(*features.shape[:-1], n) for kind in zip(*parts, strict=True))
        return values, indices

    def _at_once(self) -> int:
        """As many rows as their similarities leave room for."""
        return max(1, BYTES // (4 * min(PIECE, self.base.shape[0])))

    def _find(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The nearest to rows (R, D), (R, n); a long list is gone through in pieces."""
        if self.base.shape[0] <= 4 * PIECE:
            found = (rows @ self.base.T).topk(n, dim=-1)
            return found.values, found.indices
        best = []
        for start in range(0, self.base.shape[0], PIECE):
            piece = self.base[start : start + PIECE]
            values, indices = (rows @ piece.T).topk(min(n, len(piece)), dim=-1)
            best.append((values, indices + start))
        values, indices = (torch.cat(kind, dim=-1) for kind in zip(*best, strict=True))
        order = values.topk(n, dim=-1)
        return order.values, indices.gather(-1, order.indices)
