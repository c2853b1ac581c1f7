"""Any number of views through an image tower, in the way its device likes best."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.accelerate.graph import CudaGraph
from mltta.model.threads import beside_others, side_by_side

log = logging.getLogger("mltta")
# Views a pass: on the CPU few enough for its caches (64 at once take five times as long), on a GPU enough to fill it,
# if each may take so much of the memory that is free.
CPU_CHUNK, GPU_CHUNK, VIEW_BYTES = 8, 2048, 16 * 2**20
# Up to so many views, about those of one image, a pass on a GPU is replayed from a CUDA graph.
GRAPHED_VIEWS = 128


class ImageTower:
    """Unit features of views: in passes of a size that fits, side by side on a CPU, compiled or replayed on a GPU."""

    def __init__(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ):
        """Args:
        forward: features (N, D), not of unit length, of views (N, 3, S, S).
        dtype: what the views are to be in.
        side: S.
        """
        self._forward, self._device, self._dtype, self._side = forward, device, dtype, side
        #: views a pass
        self.chunk = CPU_CHUNK if device.type == "cpu" else _views_that_fit(device)
        #: views a pass of the compiled tower, 0 if it is not
        self.compiled_for = 0
        self._compiled: Any = None
        self._graphs: dict[int, CudaGraph | None] = {}

    @torch.no_grad()
    def __call__(self, views: Tensor) -> Tensor:
        """Unit float32 features (N, D). A GPU that runs out of memory is given half as many, from then on."""
        divided = len(views) >= CPU_CHUNK * torch.get_num_threads() and not beside_others()
        if self._device.type == "cpu" and divided:
            parts = torch.split(views.to(self._device), CPU_CHUNK)
            return F.normalize(torch.cat(list(side_by_side().map(self._pass, parts))).float(), dim=-1)
        start, features = 0, []
        while start < len(views):
            part = views[start : start + self.chunk].to(self._device)
            try:
                features.append(self._pass(part))
            except torch.cuda.OutOfMemoryError:
                if self.chunk == 1:
                    raise
                torch.cuda.empty_cache()
                self.chunk = max(1, min(self.chunk, len(part)) // 2)
                log.warning("out of GPU memory: %d views at a time from here on", self.chunk)
                continue
            start += len(part)
        return F.normalize(torch.cat(features).float(), dim=-1)

    def compile(self, views: int | None = None) -> None:
        """Compile for so many views a pass: half a minute, which long runs on a GPU win back.

        Where that fails, as without a C compiler, the tower goes on as it is.
        """
        size = min(views or self.chunk, self.chunk)
        if size == self.compiled_for:
            return
        compiled: Any = torch.compile(self._forward)
        example = torch.zeros(size, 3, self._side, self._side, dtype=self._dtype, device=self._device)
        try:
            with torch.no_grad():
                compiled(example.contiguous(memory_format=torch.channels_last))
        except Exception as error:  # compilers fail in many ways
            log.warning("the image tower could not be compiled and runs as it is: %s", type(error).__name__)
            return
        self._compiled, self.compiled_for, self.chunk = compiled, size, size

    @torch.no_grad()  # each thread has to be told
    def _pass(self, views: Tensor) -> Tensor:
        views = views.to(self._dtype, memory_format=torch.channels_last)
        n, size = len(views), self.compiled_for
        if views.is_cuda and n <= GRAPHED_VIEWS:
            return self._replayed(views)
        if 2 * n <= size or not size:
            return self._forward(views)
        # a compiled tower knows one size; what is missing is filled up and dropped
        if n < size:
            views = torch.cat([views, views[:1].expand(size - n, -1, -1, -1)])
        features: Tensor = self._compiled(views.contiguous(memory_format=torch.channels_last))
        return features[:n]

    def _replayed(self, views: Tensor) -> Tensor:
        """Few views take less time to compute than to launch: recorded the second time, replayed from then on."""
        n = len(views)
        if n not in self._graphs:
            self._graphs[n] = None
            return self._forward(views)
        graph = self._graphs[n] or CudaGraph(self._forward, views)
        self._graphs[n] = graph
        return graph(views)


def _views_that_fit(device: torch.device) -> int:
    """How many views a GPU takes at once: a power of two, by the memory that is free."""
    room = torch.cuda.mem_get_info(device)[0] // VIEW_BYTES
    return int(min(GPU_CHUNK, max(64, 2 ** (room.bit_length() - 1))))
