"""Labels on a GPU: forwards replayed from a recording, products on the tensor cores, a kept Jacobian in long runs."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from mltta.accelerate.graph import CudaGraph, tensor_cores
from mltta.accelerate.jacobian import jacobian_pays, label_jacobian
from mltta.accelerate.labels import PackedLabelEncoder
from mltta.model.label_encoder import PullBack

log = logging.getLogger("mltta")
# Up to so many contexts a forward pass is replayed: it takes less time to compute than to launch.
GRAPHED_CONTEXTS = 4


class CudaLabelEncoder(PackedLabelEncoder):
    """Which of its tricks are on, its fields say."""

    # ten times as many labels then take ten times as long, not a hundred
    most_tokens = 320
    #: take first-step gradients from a kept Jacobian: None decides by itself
    jacobian: bool | None = None
    graphs, tf32 = True, True

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._jacobian: Tensor | None = None
        self._pulled = 0
        self._graphs: dict[int, CudaGraph] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without recordings, which belong to this process."""
        return super().__getstate__() | {"_graphs": {}}

    def initial(self) -> tuple[Tensor, PullBack]:
        features, pull_back = super().initial()
        return features, lambda gradients: self._pull_initial(gradients, pull_back)

    def _pull_initial(self, gradients: Tensor, pull_back: PullBack) -> Tensor:
        self._pulled += gradients.shape[0]
        keep = jacobian_pays(self, self._pulled) if self.jacobian is None else self.jacobian
        if self._jacobian is None and self.context.ndim == 2 and keep:
            self._jacobian = label_jacobian(self)
            log.debug("first-step gradients come from a kept Jacobian, %.1f GB", self._jacobian.nbytes / 1e9)
        if self._jacobian is None:
            return pull_back(gradients)
        with self._products():
            return (gradients.flatten(1) @ self._jacobian).view(-1, *self.context.shape)

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
