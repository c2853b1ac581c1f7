"""How a run is executed: batch size, decoding workers, compilation and prefetching.

Results do not depend on it, except for rounding on a GPU. Unset options are chosen automatically and logged.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mltta.errors import ConfigError
from mltta.model.cpu_passes import cores as cores
from mltta.model.cpu_passes import thread_pool

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

T = TypeVar("T")
K = TypeVar("K")
log = logging.getLogger("mltta")
_work: Callable[[Any], Any] | None = None
# Compiling takes half a minute and saves about 1.5 ms per image (64 views).
COMPILED_IMAGES = 20_000
MOST_DECODERS = 16


@dataclass(frozen=True)
class Execution:
    """Execution options; None means automatic.

    Args:
        batch_size: images per batch, the most that a kill can lose.
        workers: processes that decode images and render views (default: threads of this process, which copy nothing).
        compile: compile the image tower with torch.compile.
        threads: number of decoding threads if there are no worker processes.
    """

    batch_size: int | None = None
    workers: int | None = None
    compile: bool | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        least = ((self.batch_size, 1), (self.threads, 1), (self.workers, 0))
        if any(value is not None and value < low for value, low in least):
            raise ConfigError(
                f"batch size and threads must be at least 1, and workers at least 0; got {self}"
            )

    def prepare(self, backbone: Backbone, images: int) -> None:
        """Compile the image tower if that pays off for this many images."""
        pays = backbone.device.type == "cuda" and images >= COMPILED_IMAGES
        if pays if self.compile is None else self.compile:
            log.debug("compiling the image tower for %d images", images)
            backbone.image_tower.compile()

    def decoders(self, backbone: Backbone) -> int:
        """Number of decoding threads if there are no worker processes: one per core."""
        # a few are enough beside encoding on a CPU, and each holds all views of two photos
        chosen = self.threads or min(8 if backbone.device.type == "cpu" else MOST_DECODERS, cores())
        log.debug("decoding images with %d threads", chosen)
        return chosen


def in_order(
    work: Callable[[Any], T], keys: Iterable[Any], *, workers: int, threads: int = 1, ahead: int
) -> Iterator[T]:
    """Results of ``work`` for each key, in order, with at most ``ahead`` started in advance.

    Args:
        workers: number of processes; 0 uses threads of this process, so that keys and results are not copied.
        threads: number of threads if there are no processes. Decoding and resizing release the GIL.
    """
    pool: Executor = (
        thread_pool(threads, "mltta-ahead")
        if not workers
        else (ProcessPoolExecutor(workers, multiprocessing.get_context(), _begin, (work,)))
    )
    do = _do if workers else work
    waiting: deque[Future[T]] = deque()
    try:
        for key in keys:
            waiting.append(pool.submit(do, key))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    """Initialize a worker process: receive the work once, and use one thread."""
    global _work
    _work = work
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _do(key: Any) -> Any:
    assert _work is not None
    return _work(key)


def overlapped(items: Iterable[K], begin: Callable[[K], Callable[[], T]], behind: bool) -> Iterator[T]:
    """Begin each item, then finish it by calling the function that ``begin`` returned, in order.

    Args:
        behind: finish an item only after the next one is available, so that a GPU works in between.
    """
    finish: Callable[[], T] | None = None
    for item in items:
        if finish is not None:
            yield finish()
        finish = begin(item)
        if not behind:
            yield finish()
            finish = None
    if finish is not None:
        yield finish()
