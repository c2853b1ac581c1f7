"""Captions by the million on a CPU: FAISS finds them, where it is installed (`pip install mltta[faiss]`)."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mltta.model.search import Search

log = logging.getLogger("mltta")
# From so many captions on FAISS searches.
LARGE = 2**20


class FaissSearch(Search):
    """Short lists are scanned plainly."""

    def _find(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        if self.base.shape[0] <= LARGE or self._faiss is None:
            return super()._find(rows, n)
        values, indices = (
            torch.from_numpy(found) for found in self._faiss.search(rows.contiguous().numpy(), n)
        )
        return values, indices

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
