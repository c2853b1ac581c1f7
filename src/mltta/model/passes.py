"""Passes through a tower: on a CPU in parallel, each on one torch thread; on a GPU in batches as large as fit.

Threads that share one operation wait for each other after every layer, which takes twenty times as long beside another
busy program. Independent passes never wait, and their results do not depend on the number of cores.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError

P = TypeVar("P")
T = TypeVar("T")
_here = threading.local()
# Views per pass: on a CPU few enough for its caches (64 at once take five times as long), on a GPU enough to fill it,
# if each may take this much of the free memory.
CPU_CHUNK, GPU_CHUNK, VIEW_BYTES = 8, 2048, 16 * 2**20


def beside_others() -> bool:
    """Whether this is one of the pool's threads; submitting work from there would deadlock."""
    return getattr(_here, "beside", False)


def _begin() -> None:
    _here.beside = True
    torch.get_num_threads()  # initialize first: a thread's first call resets its thread count to the global one
    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def side_by_side() -> ThreadPoolExecutor:
    """The thread pool: as many threads as torch would use, each limited to one torch thread; created once."""
    n = torch.get_num_threads()
    pool = ThreadPoolExecutor(n, "mltta", initializer=_begin)
    started = threading.Barrier(n + 1)
    for _ in range(n):
        pool.submit(started.wait)
    started.wait()
    torch.set_num_threads(n)  # new threads inherit this value
    return pool


def each(work: Callable[[P], T], parts: Iterable[P], device: torch.device) -> list[T]:
    """Apply a function to several items: on a CPU in parallel, each on one torch thread.

    The number of threads per operation may change the last bit of a result. Gradient mode is set per thread.
    """
    alone = device.type != "cpu" or beside_others()
    return list((map if alone else side_by_side().map)(work, parts))


@contextmanager
def gradients_after_fork() -> Iterator[None]:
    """Explain the error if torch cannot take gradients, in a fork of a process that compiled or used a GPU."""
    try:
        yield
    except RuntimeError as error:
        if "fork" not in str(error):
            raise
        raise ConfigError(
            "this process was forked after PyTorch had started threads for a GPU or its compiler, so it cannot compute "
            "gradients: start processes with multiprocessing.get_context('spawn'), or use a method "
            "without tuning, such as auto"
        ) from error


def _forked() -> None:
    """A forked process does not inherit threads and would wait for them forever, so it uses a single one."""
    if side_by_side.cache_info().currsize:
        side_by_side.cache_clear()
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ImageTower:
    """Unit features of views. On a CPU passes run in parallel, each on one thread, independent of the core count."""

    def __init__(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ):
        """Args:
        forward: returns unnormalized features (N, D) of views (N, 3, S, S).
        dtype: precision of the views.
        side: S.
        """
        self._forward, self._device, self._dtype, self._side = forward, device, dtype, side
        #: views per pass
        area = max(1.0, (side / 224) ** 2)
        self.chunk = CPU_CHUNK if device.type != "cuda" else _views_that_fit(device, area)

    def __call__(self, views: Tensor) -> Tensor:
        """Unit float32 features (N, D), or (N, L, D) for a tower with several features per view."""
        return torch.cat(each(self.one_pass, torch.split(views, self.chunk), self._device))

    @torch.no_grad()  # gradient mode is per thread
    def one_pass(self, views: Tensor) -> Tensor:
        """Unit float32 features of views, in a single pass."""
        found = self._run(views.to(self._device, self._dtype, memory_format=torch.channels_last))
        return F.normalize(found.float(), dim=-1)

    def _run(self, views: Tensor) -> Tensor:
        return self._forward(views)

    def compile(self, views: int | None = None) -> None:
        """Compile passes of this many views, if supported; not supported here."""


def _views_that_fit(device: torch.device, area: float) -> int:
    """Number of views that a GPU processes at once: a power of two, from the free memory and the area of a view."""
    room = int(torch.cuda.mem_get_info(device)[0] // (VIEW_BYTES * area))
    return int(min(GPU_CHUNK // area, max(64 // area, 2 ** (max(1, room).bit_length() - 1), 1)))
