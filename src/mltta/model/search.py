"""The captions most similar to each view: a full scan, exact."""

from __future__ import annotations

from array_api_compat import array_namespace

from mltta.arrays import Array, topk

# Similarities held at once, and vectors that are compared at once.
BYTES, PIECE = 2**30, 2**18


class Search:
    """Nearest neighbours by inner product among fixed unit vectors (K, D)."""

    def __init__(self, base: Array):
        self.base = base

    def __call__(self, features: Array, n: int) -> tuple[Array, Array]:
        """Similarities and indices (..., n) of the nearest, nearest first."""
        xp, n = array_namespace(features), min(n, self.base.shape[0])
        rows = xp.reshape(features, (-1, features.shape[-1]))
        step = self._at_once()
        parts = [self._find(rows[i : i + step], n) for i in range(0, max(1, len(rows)), step)]
        shape = (*features.shape[:-1], n)
        values, indices = (xp.reshape(xp.concat(kind), shape) for kind in zip(*parts, strict=True))
        return values, indices

    def _at_once(self) -> int:
        """As many rows as their similarities leave room for."""
        return max(1, BYTES // (4 * min(PIECE, int(self.base.shape[0]))))

    def _find(self, rows: Array, n: int) -> tuple[Array, Array]:
        """The nearest to rows (R, D), (R, n); a long list is gone through in pieces."""
        if self.base.shape[0] <= 4 * PIECE:
            return topk(rows @ self.base.T, n)
        best = []
        for start in range(0, self.base.shape[0], PIECE):
            piece = self.base[start : start + PIECE]
            values, indices = topk(rows @ piece.T, min(n, len(piece)))
            best.append((values, indices + start))
        xp = array_namespace(rows)
        values, indices = (xp.concat(kind, axis=-1) for kind in zip(*best, strict=True))
        values, order = topk(values, n)
        return values, xp.take_along_axis(indices, order, axis=-1)
