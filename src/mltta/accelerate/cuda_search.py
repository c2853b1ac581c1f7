"""Captions by the million on a GPU: a scan in half precision, whose best are compared again in float32."""

from __future__ import annotations

import torch
from torch import Tensor

from mltta.model.search import BYTES, Search

# From so many captions on the scan runs in half precision.
SCANNED_IN_HALF = 16_384
# Captions whose best similarity stands for them all; how many of a scan's best are compared again for each wanted.
GROUP, AGAIN = 128, 4


class HalfSearch(Search):
    """Short lists are scanned plainly.

    With a long list the answer is that of the float32 scan unless more than 3 n others lie within the rounding of
    half precision of the n-th.
    """

    _half: Tensor | None = None

    def _at_once(self) -> int:
        return max(1, BYTES // (2 * self.base.shape[0])) if self._is_long else super()._at_once()

    def _find(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        return self._scan(rows, n) if self._is_long else super()._find(rows, n)

    @property
    def _is_long(self) -> bool:
        return len(self.base) >= SCANNED_IN_HALF

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
