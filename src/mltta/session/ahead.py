"""Work done ahead, in order, by threads or processes, never more of it than is asked for soon."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

T = TypeVar("T")
_work: Callable[[Any], Any] | None = None


def in_order(
    work: Callable[[Any], T], keys: Iterable[Any], *, workers: int, threads: int = 1, ahead: int
) -> Iterator[T]:
    """What ``work`` makes of each key, in their order, with at most ``ahead`` begun before they are asked for.

    Args:
        workers: processes that do it; 0: threads of this one, so that neither keys nor results need be copied.
        threads: how many, where there are no processes. Decoding and resizing let others run meanwhile.
    """
    pool: Executor
    submit: Callable[[Any], Future[T]]
    if workers:
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context(), _begin, (work,))
        submit = lambda key: pool.submit(_do, key)  # noqa: E731
    else:
        pool = ThreadPoolExecutor(threads, "mltta-ahead")
        submit = lambda key: pool.submit(work, key)  # noqa: E731
    waiting: deque[Future[T]] = deque()
    try:
        for key in keys:
            waiting.append(submit(key))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    """Each process is given the work once, and one thread of torch."""
    global _work
    _work = work
    torch.set_num_threads(1)


def _do(key: Any) -> Any:
    assert _work is not None
    return _work(key)
