"""Batches overlap on a GPU: the next is asked for before one is finished, and none is begun before that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from mltta.model.torch_engine import TorchEngine
from mltta.session.execution import overlapped


@pytest.mark.parametrize(
    ("behind", "order"),
    [
        (True, "ask 0, begin 0, ask 1, finish 0, begin 1, ask 2, finish 1, begin 2, finish 2"),
        (False, "ask 0, begin 0, finish 0, ask 1, begin 1, finish 1, ask 2, begin 2, finish 2"),
    ],
)
def test_each_is_finished_once_the_next_is_there_and_before_that_is_begun(behind, order):
    said: list[str] = []

    def say(word: str, key: int) -> int:
        said.append(f"{word} {key}")
        return key

    def items() -> Iterator[int]:
        yield from (say("ask", key) for key in range(3))

    def begin(key: int) -> Callable[[], int]:
        say("begin", key)
        return lambda: say("finish", key)

    found = overlapped(items(), begin, behind)
    assert list(found) == [0, 1, 2]
    assert ", ".join(said) == order


def test_nothing_to_do_is_nothing_done():
    assert list(overlapped([], lambda key: lambda: key, True)) == []


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_values_and_times_are_there_once_they_are_asked_for(device):
    engine = TorchEngine(SimpleNamespace(device=torch.device(device)))
    stop = engine.stopwatch()
    values = engine.to_cpu(torch.arange(5, device=device) * 2)
    ms = stop()
    assert values().tolist() == [0, 2, 4, 6, 8]
    assert 0 <= ms() < 60_000
