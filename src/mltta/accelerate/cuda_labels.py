"""Labels on a GPU: forward passes replayed from CUDA graphs, TF32 products, a stored Jacobian in long runs.

The Jacobian is the derivative of the labels' features with respect to the context, constant for a model, labels and
template. Every image's first step starts from the same context, so its gradient is one product with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from mltta.accelerate.cuda_tower import CudaGraph
from mltta.accelerate.labels import PackedLabelEncoder
from mltta.model.label_encoder import LabelEncoder, PullBack

log = logging.getLogger("mltta")
# Up to this many contexts a forward pass is replayed, because launching takes longer than computing.
GRAPHED_CONTEXTS = 4
# From this many images a Jacobian pays off: computing it costs as much as adapting them. Passes have this many bytes.
IMAGES, BYTES = 512, 2 * 2**30
_lock = threading.Lock()
_wanted = 0
_before = False


class CudaLabelEncoder(PackedLabelEncoder):
    """Label encoder with optimizations enabled by its fields."""

    # ten times as many labels then take ten times as long, not a hundred times
    most_tokens = 320
    #: whether first-step gradients use a stored Jacobian; None decides automatically
    jacobian: bool | None = None
    graphs, tf32 = True, True

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._jacobian: Tensor | None = None
        self._pulled = 0
        self._graphs: dict[int, CudaGraph] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Drop CUDA graphs, which are specific to this process."""
        return super().__getstate__() | {"_graphs": {}}

    def initial(self) -> tuple[Tensor, PullBack]:
        features, pull_back = super().initial()
        return features, lambda gradients: self._pull_initial(gradients, pull_back)

    def _pull_initial(self, gradients: Tensor, pull_back: PullBack) -> Tensor:
        self._pulled += gradients.shape[0]
        keep = self._jacobian_pays() if self.jacobian is None else self.jacobian
        if self._jacobian is None and self.context.ndim == 2 and keep:
            self._jacobian = label_jacobian(self)
            log.debug("first-step gradients use a stored Jacobian, %.1f GB", self._jacobian.nbytes / 1e9)
        if self._jacobian is None:
            return pull_back(gradients)
        with self._products():
            return (gradients.flatten(1) @ self._jacobian).view(-1, *self.context.shape)

    def _jacobian_pays(self) -> bool:
        """Whether to use the Jacobian: on a GPU, in long runs, if it fits into a quarter of the free memory."""
        if not self.context.is_cuda or self._pulled < IMAGES:
            return False
        size = 4 * self.features.numel() * self.context.numel()
        return size <= torch.cuda.mem_get_info(self.context.device)[0] // 4

    def _forward(self, contexts: Tensor) -> Tensor:
        if not self.graphs or not contexts.is_cuda or contexts.shape[0] > GRAPHED_CONTEXTS:
            return self._launched(contexts)
        graphed = self._graphs.get(contexts.shape[0]) or CudaGraph(self._launched, contexts)
        self._graphs[contexts.shape[0]] = graphed
        return graphed(contexts)

    def _launched(self, contexts: Tensor) -> Tensor:
        with self._products():
            return super()._forward(contexts)

    def _products(self) -> Any:
        return tensor_cores() if self.tf32 else nullcontext()


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Run float32 products on a GPU in TF32 (10 mantissa bits, several times faster); no effect on a CPU.

    The switch is global: the last thread to leave restores it.
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


def label_jacobian(encoder: LabelEncoder, max_bytes: int = BYTES) -> Tensor:
    """Jacobian (C·D, M·W): row (c, d) is the gradient of label c's feature d at the initial context.

    Each label gets a copy of the context, so that one backward pass yields a row of every label: D passes in total.
    """
    at_once = max(1, min(16, max_bytes // (16 * encoder.context.shape[1] * encoder.plain_tokens)))
    context = encoder.context.expand(len(encoder), -1, -1)[None].clone().requires_grad_()  # (1, C, M, W)
    # this kernel supports batched differentiation
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        features = encoder.plain(context)  # (1, C, D)
        labels, dim = features.shape[1:]
        rows = torch.empty(labels, dim, encoder.context.numel(), device=features.device)
        for start in range(0, dim, at_once):
            n = min(at_once, dim - start)
            basis = torch.zeros(n, 1, labels, dim, device=features.device)
            basis[torch.arange(n), :, :, start + torch.arange(n)] = 1
            (found,) = torch.autograd.grad(features, context, basis, is_grads_batched=True, retain_graph=True)
            rows[:, start : start + n] = found[:, 0].flatten(2).transpose(0, 1)
    return rows.flatten(0, 1)
