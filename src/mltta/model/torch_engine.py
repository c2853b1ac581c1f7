"""The torch engine: everything a session asks of the machine that holds the model.

A session is NumPy and array API only; another runtime takes part by answering the same calls.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from mltta.model.encode import Encodings, encode
from mltta.model.halving import Halving
from mltta.model.threads import gradients_after_fork, side_by_side

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone
    from mltta.session.prepare import Prepared

log = logging.getLogger("mltta")
T = TypeVar("T")
# On a GPU this many images are processed at once, if each may take this much of an eighth of the free memory.
IMAGES_AT_ONCE, IMAGE_BYTES = 32, 32 * 2**20


class TorchEngine:
    """Encodes photos and runs methods on one device, a batch at a time.

    On a CPU each photo is processed alone, by one thread: its bits never depend on the photos beside it.
    """

    def __init__(self, backbone: Backbone):
        self._backbone, self._device = backbone, backbone.device
        #: whether a batch is worth starting before the previous one has finished
        self.waits = self._device.type != "cpu"

    def batches(self, batch_size: int | None = None) -> Halving:
        """How many images to process at once: as many as fill a GPU, or as there are threads."""
        if batch_size is None:
            batch_size = max(1, min(8, torch.get_num_threads()))
            if self._device.type == "cuda":
                room = torch.cuda.mem_get_info(self._device)[0] // 8 // IMAGE_BYTES
                batch_size = int(max(1, min(IMAGES_AT_ONCE, room)))
            log.debug("%d images at a time", batch_size)
        return Halving(batch_size)

    def encode(
        self, photos: Sequence[Prepared], seed: int, at_once: Halving, fill: int
    ) -> Callable[[], list[Encodings]]:
        """Start to encode photos; the answer, when called, waits for their finite features."""
        made = encode(self._backbone, photos, seed, at_once, fill)
        sums = [own.sum(dtype=torch.float32) for found in made for own in found.values()]
        finite = self.to_cpu(torch.stack(sums).isfinite()) if sums else None

        def finish() -> list[Encodings]:
            flags = iter(finite().tolist() if finite is not None else ())
            return [{spec: own for spec, own in found.items() if next(flags)} for found in made]

        return finish

    def batch(self, features: Sequence[Any]) -> Any:
        """Float32 features (B, N, D) on the device, of those of each photo; cached ones may lie elsewhere."""
        return torch.stack([torch.as_tensor(own).to(self._device) for own in features]).float()

    def rows(self, features: Sequence[Any]) -> list[NDArray[np.float16]]:
        """Features of several photos as rows on the CPU, waited for once."""
        return list(torch.stack(list(features)).cpu().numpy())

    def to_cpu(self, values: Any) -> Callable[[], NDArray[Any]]:
        """Start to copy a tensor to the CPU; the answer, when called, waits for it."""
        copied = values.detach().to("cpu", non_blocking=values.is_cuda)
        there = self._event()

        def finish() -> NDArray[Any]:
            if there is not None:
                there.synchronize()
            found: NDArray[Any] = copied.numpy()
            return found

        return finish

    def stopwatch(self) -> Callable[[], Callable[[], float]]:
        """Start to time what the device does; called, it stops, and gives the milliseconds once they are known."""
        start, clock = self._event(), time.perf_counter()

        def stop() -> Callable[[], float]:
            end, seconds = self._event(), time.perf_counter() - clock

            def ms() -> float:
                if start is None or end is None:
                    return 1000 * seconds
                end.synchronize()
                return float(start.elapsed_time(end))

            return ms

        return stop

    def map(
        self, work: Callable[[Sequence[Any]], list[T]], items: Sequence[Any], at_once: Halving
    ) -> list[T]:
        """Apply ``work`` to batches: of one item each, side by side, on a CPU; of as many as fit on a GPU."""
        if self._device.type == "cpu":
            return list(side_by_side().map(lambda item: work([item])[0], items))
        return at_once(work, items)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Methods take gradients, whatever the caller is doing."""
        with torch.inference_mode(False), gradients_after_fork():
            yield

    def _event(self) -> torch.cuda.Event | None:
        """The current moment in the order of a GPU's work."""
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event
