"""A GPU that is never idle: it is given the next batch before the one before it is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
B = TypeVar("B")
R = TypeVar("R")


def overlapped(
    items: Iterable[T], begin: Callable[[T], B], finish: Callable[[B], R], behind: bool
) -> Iterator[R]:
    """Begin and finish items in their order; ``behind``: each once the next is there, and before that is begun."""
    under_way: list[B] = []
    for item in items:
        if under_way:
            yield finish(under_way.pop())
        under_way.append(begin(item))
        if not behind:
            yield finish(under_way.pop())
    if under_way:
        yield finish(under_way.pop())


class Later:
    """A tensor on its way to the CPU."""

    def __init__(self, values: Tensor):
        self._values = values.to("cpu", non_blocking=values.is_cuda)
        self._there = _moment(values.device)

    def get(self) -> Tensor:
        """The values, once they are there."""
        if self._there is not None:
            self._there.synchronize()
        return self._values


class Stopwatch:
    """The time that a device spends on what it is given between two moments, what was given to it before left out."""

    def __init__(self, device: torch.device):
        self._device = device
        self._start = _moment(device)
        self._end: torch.cuda.Event | None = None
        self._clock, self._seconds = time.perf_counter(), 0.0

    def stop(self) -> None:
        """All has been given."""
        self._end = _moment(self._device)
        self._seconds = time.perf_counter() - self._clock

    def ms(self) -> float:
        """Milliseconds; waits for their end."""
        if self._start is None or self._end is None:
            return 1000 * self._seconds
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end))


def _moment(device: torch.device) -> torch.cuda.Event | None:
    """Now, in the order of what a GPU is given."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
