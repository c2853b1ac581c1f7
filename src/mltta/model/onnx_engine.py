"""The ONNX Runtime engine: what a session asks of the machine, on the cores of a CPU, in NumPy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mltta.images.specs import AnySpec
from mltta.model.cpu_passes import IN_PAGE, cores, encode_alone, thread_pool

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

    from mltta.model.onnx_backbone import OnnxBackbone
    from mltta.session.prepare import Prepared

T = TypeVar("T")


class AtOnce(NamedTuple):
    """How many photos are processed at once."""

    size: int


class OnnxEngine:
    """Encodes photos and runs methods, each photo alone: its bits never depend on the photos beside it."""

    #: whether a batch is worth starting before the previous one has finished
    waits = False

    def __init__(self, backbone: OnnxBackbone):
        self._backbone = backbone

    def __getstate__(self) -> dict[str, Any]:
        """Another process has threads of its own."""
        return {"_backbone": self._backbone}

    @property
    def _at_once(self) -> int:
        asked = os.environ.get("OMP_NUM_THREADS", "")
        return int(asked) if asked.isdecimal() else cores()

    @cached_property
    def _pool(self) -> tuple[int, Executor]:
        return os.getpid(), thread_pool(self._at_once, "mltta")

    @property
    def threads(self) -> Executor:
        """As many threads as cores; after a fork others than the parent's."""
        if self._pool[0] != os.getpid():
            del self._pool
        return self._pool[1]

    def batches(self, batch_size: int | None = None) -> AtOnce:
        """How many photos to process at once: as many as there are threads."""
        return AtOnce(batch_size or min(8, self._at_once))

    def encode(
        self, photos: Sequence[Prepared], seed: int, at_once: AtOnce, fill: int
    ) -> Callable[[], list[dict[AnySpec, Any]]]:
        """Encode photos; the answer, when called, gives their finite features."""
        made = encode_alone(self._backbone, photos, self.threads)
        return lambda: [{spec: own for spec, own in one.items() if np.isfinite(own).all()} for one in made]

    def batch(self, features: Sequence[Any]) -> NDArray[np.float32]:
        """Float32 features (B, N, D) of those of each photo."""
        return np.stack(features).astype(np.float32)

    def rows(self, features: Sequence[Any]) -> list[NDArray[np.float16]]:
        """Features of several photos as rows."""
        return list(features)

    def to_cpu(self, values: Any) -> Callable[[], NDArray[Any]]:
        """The values, which are there."""
        return lambda: values

    def stopwatch(self) -> Callable[[], Callable[[], float]]:
        """Start to time; called, it stops, and gives the milliseconds."""
        clock = time.perf_counter()

        def stop() -> Callable[[], float]:
            ms = 1000 * (time.perf_counter() - clock)
            return lambda: ms

        return stop

    def map(self, work: Callable[[Sequence[Any]], list[T]], items: Sequence[Any], at_once: AtOnce) -> list[T]:
        """Apply ``work`` to one item each, side by side."""
        return list(self.threads.map(lambda item: work([item])[0], items))

    @cached_property
    def _blas(self) -> ThreadpoolController:
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController()

    def scoring(self) -> AbstractContextManager[Any]:
        """Each photo has a thread: those of NumPy's matrix products would only wait for each other."""
        if IN_PAGE:
            return nullcontext()
        limited: AbstractContextManager[Any] = self._blas.limit(limits=1, user_api="blas")
        return limited
