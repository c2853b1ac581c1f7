"""Batches that shrink when a GPU runs out of memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

log = logging.getLogger("mltta")


class Halving:
    """Process as many items at once as fit in memory; after running out, half as many from then on."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, work: Callable[[Sequence[Any]], list[Any]], items: Sequence[Any]) -> list[Any]:
        """The results of all items, in order; ``work`` returns one result per item."""
        found: list[Any] = []
        while len(found) < len(items):
            part = items[len(found) : len(found) + self.size]
            try:
                found += work(part)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                torch.cuda.empty_cache()
                self.size = len(part) // 2
                log.warning("out of GPU memory: %d images at a time from here on", self.size)
        return found
