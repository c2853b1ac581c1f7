"""Work side by side on a CPU, each piece by one thread of torch.

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

from mltta.errors import ConfigError

P = TypeVar("P")
T = TypeVar("T")
_here = threading.local()


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
