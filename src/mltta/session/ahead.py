"""Work done ahead, in order, by threads or processes, never more of it than is asked for soon."""

from __future__ import annotations

import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K")
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
    """Each worker process receives the work once, and uses one thread."""
    global _work
    _work = work
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _do(key: Any) -> Any:
    assert _work is not None
    return _work(key)


def overlapped(items: Iterable[K], begin: Callable[[K], Callable[[], T]], behind: bool) -> Iterator[T]:
    """Begin each item, then finish it by calling what ``begin`` returned, in order.

    Args:
        behind: finish an item once the next one is there, before that one begins: a GPU works in between.
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
