"""Search among millions of captions: half precision on a GPU, FAISS on a CPU (`pip install mltta[faiss]`)."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mltta.model.search import BYTES, Search

log = logging.getLogger("mltta")
# Minimum number of captions for FAISS, and for a half-precision scan on a GPU.
LARGE, SCANNED_IN_HALF = 2**20, 16_384
# Size of groups represented by their best similarity; number of candidates compared again per result.
GROUP, AGAIN = 128, 4


class FaissSearch(Search):
    """Search with FAISS; short lists are scanned."""

    def _find(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        if self.base.shape[0] <= LARGE or self._faiss is None:
            return super()._find(rows, n)
        values, indices = map(torch.from_numpy, self._faiss.search(rows.contiguous().numpy(), n))
        return values, indices

    @cached_property
    def _faiss(self) -> Any:
        """An exact index of all vectors, or None if FAISS is not installed."""
        try:
            import faiss
        except ImportError:
            log.debug("FAISS is not installed: searching %d captions in pieces", self.base.shape[0])
            return None
        index = faiss.IndexFlatIP(self.base.shape[1])
        index.add(self.base.contiguous().numpy())
        log.debug("searching %d captions with FAISS", self.base.shape[0])
        return index


class HalfSearch(Search):
    """A half-precision scan whose best candidates are compared again in float32; short lists use float32 only.

    The result equals that of the float32 scan unless more than 3 n other captions are within half-precision rounding
    of the n-th.
    """

    def _at_once(self) -> int:
        return max(1, BYTES // (2 * self.base.shape[0])) if self._is_long else super()._at_once()

    def _find(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        return self._scan(rows, n) if self._is_long else super()._find(rows, n)

    @property
    def _is_long(self) -> bool:
        return self.base.shape[0] >= SCANNED_IN_HALF  # type: ignore[no-any-return]

    @cached_property
    def _halves(self) -> Tensor:
        """The vectors in half precision, padded to whole groups with copies of the first."""
        fill = self.base[:1].expand(-self.base.shape[0] % GROUP, -1)
        return torch.cat([self.base, fill]).half()

    def _scan(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        k = self.base.shape[0]
        similar = rows.half() @ self._halves.T  # (R, K')
        similar[:, k:] = -torch.inf
        groups = similar.view(len(rows), -1, GROUP)
        wanted = min(AGAIN * n, k)
        # the m best are in the m groups with the highest maxima
        best = groups.amax(-1).topk(min(wanted, groups.shape[1]), sorted=False).indices  # (R, G)
        close = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)
        at = close.topk(wanted, sorted=False).indices
        candidates = best.gather(1, at // GROUP) * GROUP + at % GROUP  # (R, m)
        exact = torch.einsum("rmd,rd->rm", self.base[candidates], rows)
        found = exact.topk(n)
        return found.values, candidates.gather(1, found.indices)
