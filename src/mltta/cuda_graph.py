"""Two ways to spend less time on a GPU: kernels replayed from a recording, and products on the tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class CudaGraph:
    """A CUDA graph of a function of one tensor: all its kernels launched at once."""

    def __init__(self, function: Callable[[Tensor], Tensor], example: Tensor):
        self._input = example.clone()
        stream = torch.cuda.Stream(example.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(example.device))
        with torch.cuda.stream(stream):
            for _ in range(3):  # libraries choose their kernels and workspaces before the recording
                function(self._input)
        torch.cuda.current_stream(example.device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = function(self._input)

    def __call__(self, x: Tensor) -> Tensor:
        self._input.copy_(x)
        self._graph.replay()
        return self._output.clone()


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let float32 products on a GPU run in TF32: ten bits of mantissa, several times as fast; nothing on a CPU."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
