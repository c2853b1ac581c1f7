"""Exact search for the captions most similar to each view, by full scan."""

from __future__ import annotations

from array_api_compat import array_namespace

from mltta.arrays import Array, topk

# Maximum number of similarities in memory, and of vectors compared at once.
BYTES, PIECE = 2**30, 2**18


class Search:
    """Nearest neighbours by inner product among fixed unit vectors (K, D)."""

    def __init__(self, base: Array):
        self.base = base

    def __call__(self, features: Array, n: int) -> tuple[Array, Array]:
        """Similarities and indices (..., n) of the nearest vectors, nearest first."""
        xp, n = array_namespace(features), min(n, self.base.shape[0])
        rows = xp.reshape(features, (-1, features.shape[-1]))
        step = self._at_once()
        parts = [self._find(rows[i : i + step], n) for i in range(0, max(1, len(rows)), step)]
        shape = (*features.shape[:-1], n)
        values, indices = (xp.reshape(xp.concat(kind), shape) for kind in zip(*parts, strict=True))
        return values, indices

    def _at_once(self) -> int:
        """Number of rows whose similarities fit in memory."""
        return max(1, BYTES // (4 * min(PIECE, len(self.base))))

    def _find(self, rows: Array, n: int) -> tuple[Array, Array]:
        """The nearest vectors to rows (R, D), as (R, n); a long list is searched in pieces."""
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
