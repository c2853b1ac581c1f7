"""The captions most similar to each view: a full scan, exact, and fast on a GPU for a million captions.

On a CPU a list of more than a million is searched by FAISS where that is installed (`pip install mltta[faiss]`), with
the same answer up to ties, and otherwise in pieces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger("mltta")
# On a GPU, from so many captions on, the scan runs in half precision and its best are compared again in float32.
SCANNED_IN_HALF = 16_384
# Captions whose best similarity stands for them all; how many of a scan's best are compared again for each wanted.
GROUP, AGAIN = 128, 4
# On a CPU, from so many captions on, similarities to all of them are not held at once.
LARGE, PIECE = 2**20, 2**18
# Similarities held at once.
BYTES = 2**30


class Search:
    """Nearest neighbours by inner product among fixed unit vectors (K, D)."""

    def __init__(self, base: Tensor):
        self.base = base
        self._half: Tensor | None = None

    def __call__(self, features: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Similarities and indices (..., n) of the nearest, nearest first.

        On a GPU with a long list the answer is that of the float32 scan unless more than 3 n others lie within the
        rounding of half precision of the n-th.
        """
        n = min(n, self.base.shape[0])
        if self.base.device.type == "cpu" and self.base.shape[0] > LARGE:
            return self._large(features, n)
        if self.base.device.type == "cpu" or self.base.shape[0] < SCANNED_IN_HALF:
            return self._in_parts(features, n, 4, self._plain)
        return self._in_parts(features, n, 2, self._scan)

    def _in_parts(
        self, features: Tensor, n: int, size: int, find: Callable[[Tensor, int], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """As many rows at a time as their similarities, of so many bytes each, leave room for."""
        rows = features.reshape(-1, features.shape[-1])
        at_once = max(1, BYTES // (size * self.base.shape[0]))
        parts = [find(part, n) for part in torch.split(rows, at_once)]
        values, indices = (torch.cat(kind).view(*features.shape[:-1], n) for kind in zip(*parts, strict=True))
        return values, indices

    def _plain(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        found = (rows @ self.base.T).topk(n, dim=-1)
        return found.values, found.indices

    def _large(self, features: Tensor, n: int) -> tuple[Tensor, Tensor]:
        index = self._faiss
        if index is not None:
            rows = features.reshape(-1, features.shape[-1]).contiguous().numpy()
            values, indices = (torch.from_numpy(found) for found in index.search(rows, n))
            return values.view(*features.shape[:-1], n), indices.view(*features.shape[:-1], n)
        found = []
        for start, piece in zip(
            range(0, self.base.shape[0], PIECE), torch.split(self.base, PIECE), strict=True
        ):
            best = (features @ piece.T).topk(min(n, len(piece)), dim=-1)
            found.append((best.values, best.indices + start))
        values, indices = (torch.cat(kind, dim=-1) for kind in zip(*found, strict=True))
        order = values.topk(n, dim=-1)
        return order.values, indices.gather(-1, order.indices)

    @cached_property
    def _faiss(self) -> Any:
        """An exact index over all vectors, or None where FAISS is not installed."""
        try:
            import faiss
        except ImportError:
            log.debug("FAISS is not installed: %d captions are searched in pieces", self.base.shape[0])
            return None
        index = faiss.IndexFlatIP(self.base.shape[1])
        index.add(self.base.contiguous().numpy())
        log.debug("%d captions are searched by FAISS", self.base.shape[0])
        return index

    @property
    def _halves(self) -> Tensor:
        """The vectors in half precision, filled up to whole groups with copies of the first."""
        if self._half is None:
            k = self.base.shape[0]
            fill = self.base[:1].expand(-k % GROUP, -1)
            self._half = torch.cat([self.base, fill]).half()
        return self._half

    def _scan(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        k = self.base.shape[0]
        similar = rows.half() @ self._halves.T  # (R, K')
        similar[:, k:] = -torch.inf
        groups = similar.view(len(rows), -1, GROUP)
        wanted = min(AGAIN * n, k)
        # the m best lie in the m groups with the best maxima
        best = groups.amax(-1).topk(min(wanted, groups.shape[1]), sorted=False).indices  # (R, G)
        close = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)
        at = close.topk(wanted, sorted=False).indices
        candidates = best.gather(1, at // GROUP) * GROUP + at % GROUP  # (R, m)
        exact = torch.einsum("rmd,rd->rm", self.base[candidates], rows)
        found = exact.topk(n)
        return found.values, candidates.gather(1, found.indices)
