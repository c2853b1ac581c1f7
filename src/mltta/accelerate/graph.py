"""Two ways to spend less time on a GPU: kernels replayed from a recording, and products on the tensor cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class CudaGraph:
    """A CUDA graph of a function of one tensor: all its kernels launched at once, for one caller at a time."""

    def __init__(self, function: Callable[[Tensor], Tensor], example: Tensor):
        self._lock = threading.Lock()
        self._input = example.clone()
        with torch.cuda.device(example.device):  # the recording is made on the current one
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):  # libraries choose their kernels and workspaces before the recording
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


_lock = threading.Lock()
_wanted = 0
_before = False


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let float32 products on a GPU run in TF32: ten bits of mantissa, several times as fast; nothing on a CPU.

    The switch is one for all threads: the last to leave puts it back.
    """
    global _wanted, _before
    with _lock:
        if not _wanted:
            _before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = True
        _wanted += 1
    try:
        yield
    finally:
        with _lock:
            _wanted -= 1
            if not _wanted:
                torch.backends.cuda.matmul.allow_tf32 = _before
