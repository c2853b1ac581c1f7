"""An image tower on a GPU: compiled for long runs, replayed from CUDA graphs for few views."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mltta.model.passes import ImageTower

log = logging.getLogger("mltta")
# Up to this many views, about those of one image, a pass is replayed.
GRAPHED_VIEWS = 128


class CudaGraph:
    """A CUDA graph of a function of one tensor: launches all its kernels at once, for one caller at a time."""

    def __init__(self, function: Callable[[Tensor], Tensor], example: Tensor):
        self._lock = threading.Lock()
        self._input = example.clone()
        with torch.cuda.device(example.device):  # capture uses the current device
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):  # warm-up: libraries select kernels and workspaces
                    function(self._input)
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=stream):
                self._output = function(self._input)

    def __call__(self, x: Tensor) -> Tensor:
        with self._lock, torch.cuda.device(x.device):
            self._input.copy_(x)
            self._graph.replay()
            return self._output.clone()


class CudaImageTower(ImageTower):
    """Runs passes in batches that fit; ``compile`` makes them faster."""

    graphs = True

    def __init__(self, *args: Any):
        super().__init__(*args)
        #: views per pass of the compiled tower, 0 if not compiled
        self.compiled_for = 0
        self._compiled: Any = None
        self._graphs: dict[tuple[int, ...], CudaGraph | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Drop CUDA graphs and compiled code, which are specific to this process."""
        return self.__dict__ | {"compiled_for": 0, "_compiled": None, "_graphs": {}}

    def compile(self, views: int | None = None) -> None:
        """Compile for this many views per pass: takes half a minute, which pays off in long runs on a GPU.

        If that fails, e.g. without a C compiler, the tower is used uncompiled.
        """
        size = min(views or self.chunk, self.chunk)
        if size == self.compiled_for:
            return
        compiled: Any = torch.compile(self._forward)
        example = torch.zeros(size, 3, self._side, self._side, dtype=self._dtype, device=self._device)
        try:
            with torch.no_grad():
                compiled(example.contiguous(memory_format=torch.channels_last))
        except Exception as error:  # compilers raise many types
            log.warning("cannot compile the image tower; running it uncompiled: %s", type(error).__name__)
            return
        self._compiled, self.compiled_for, self.chunk = compiled, size, size

    def _run(self, views: Tensor) -> Tensor:
        n, size = len(views), self.compiled_for
        if self.graphs and views.is_cuda and n <= GRAPHED_VIEWS:
            return self._replayed(views)
        if 2 * n <= size or not size or views.shape[-1] != self._side:
            return self._forward(views)
        # a compiled tower has a fixed batch size; pad to it and drop the rest
        if n < size:
            views = torch.cat([views, views[:1].expand(size - n, -1, -1, -1)])
        return self._compiled(views.contiguous(memory_format=torch.channels_last))[:n]  # type: ignore[no-any-return]

    def _replayed(self, views: Tensor) -> Tensor:
        """Replay a pass of few views, for which launching dominates: captured on second use."""
        shape = tuple(views.shape)
        if shape not in self._graphs:
            self._graphs[shape] = None
            return self._forward(views)
        graph = self._graphs[shape] or CudaGraph(self._forward, views)
        self._graphs[shape] = graph
        return graph(views)
