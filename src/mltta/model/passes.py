"""Passes through a tower: on a CPU side by side, each by one thread of torch; on a GPU as large as it likes.

Threads that share one piece of work wait for each other after every layer: beside another busy program that takes
twenty times as long. Pieces of their own never wait, and their bits do not depend on the number of cores.
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
from mltta.model.cpu_passes import CPU_CHUNK

P = TypeVar("P")
T = TypeVar("T")
_here = threading.local()
# Views a pass: on a GPU enough to fill it, if each may take so much of the memory that is free.
GPU_CHUNK, VIEW_BYTES = 2048, 16 * 2**20


def beside_others() -> bool:
    """Whether this is one of those threads; work given to them from there would wait for itself."""
    return getattr(_here, "beside", False)


def _begin() -> None:
    _here.beside = True
    torch.get_num_threads()  # a thread's first question sets its number to everybody's, so it is asked before
    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def side_by_side() -> ThreadPoolExecutor:
    """As many threads as torch would use, each of which lets torch use itself only; started once."""
    n = torch.get_num_threads()
    pool = ThreadPoolExecutor(n, "mltta", initializer=_begin)
    started = threading.Barrier(n + 1)
    for _ in range(n):
        pool.submit(started.wait)
    started.wait()
    torch.set_num_threads(n)  # what one thread sets, later threads begin with
    return pool


def each(work: Callable[[P], T], parts: Iterable[P], device: torch.device) -> list[T]:
    """Do the same with several things, on a CPU side by side and each by one thread of torch.

    A product's last bit may hang on how many threads share it. Threads have to be told that there are no gradients.
    """
    alone = device.type != "cpu" or beside_others()
    return list((map if alone else side_by_side().map)(work, parts))


@contextmanager
def gradients_after_fork() -> Iterator[None]:
    """Say what to do where torch cannot take gradients: in a fork of a process that compiled or used a GPU before."""
    try:
        yield
    except RuntimeError as error:
        if "fork" not in str(error):
            raise
        raise ConfigError(
            "this process was forked from one in which PyTorch had started threads for a GPU or its compiler, and "
            "cannot take gradients: start processes with multiprocessing.get_context('spawn'), or take a method "
            "that tunes nothing, such as auto"
        ) from error


def _forked() -> None:
    """A forked process has none of its parent's threads, and would wait for them for ever: it works with one."""
    if side_by_side.cache_info().currsize:
        side_by_side.cache_clear()
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ImageTower:
    """Unit features of views. On a CPU passes run side by side, each by one thread: the bits do not depend on cores."""

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
        area = max(1.0, (side / 224) ** 2)
        self.chunk = CPU_CHUNK if device.type != "cuda" else _views_that_fit(device, area)

    def __call__(self, views: Tensor) -> Tensor:
        """Unit float32 features (N, D), or (N, L, D) of a tower that gives several."""
        return torch.cat(each(self.one_pass, torch.split(views, self.chunk), self._device))

    @torch.no_grad()  # each thread has to be told
    def one_pass(self, views: Tensor) -> Tensor:
        """Unit float32 features of views, all in one pass."""
        found = self._run(
            torch.as_tensor(views).to(self._device, self._dtype, memory_format=torch.channels_last)
        )
        return F.normalize(found.float(), dim=-1)

    def _run(self, views: Tensor) -> Tensor:
        return self._forward(views)

    def compile(self, views: int | None = None) -> None:
        """Make passes of so many views faster, where there is a way: here there is none."""


def _views_that_fit(device: torch.device, area: float) -> int:
    """How many views a GPU takes at once: a power of two, by the memory that is free and the area of a view."""
    room = int(torch.cuda.mem_get_info(device)[0] // (VIEW_BYTES * area))
    return int(min(GPU_CHUNK // area, max(64 // area, 2 ** (max(1, room).bit_length() - 1), 1)))
