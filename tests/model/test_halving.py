"""Batches shrink when memory runs out, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from mltta.model.torch_engine import Halving


class Memory:
    """Work that takes so many items at once and no more."""

    def __init__(self, most: int):
        self.most = most
        self.tried: list[int] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.tried.append(len(items))
        if len(items) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [10 * item for item in items]


def test_out_of_memory_half_as_many_are_worked_on_from_then_on_in_the_same_order(caplog) -> None:
    memory, at_once = Memory(3), Halving(8)
    assert at_once(memory, range(7)) == [0, 10, 20, 30, 40, 50, 60]
    assert memory.tried == [7, 3, 3, 1]
    assert "out of GPU memory; continuing with 3 images at a time" in caplog.text
    memory.most = 100
    assert at_once(memory, list(range(7))) == [0, 10, 20, 30, 40, 50, 60]
    assert memory.tried[4:] == [3, 3, 1], "and in the next call too"


def test_memory_that_shrinks_in_the_middle_loses_nothing() -> None:
    memory, at_once = Memory(8), Halving(8)
    done: list[int] = []

    def work(items: Sequence[int]) -> list[int]:
        memory.most = 8 if len(done) < 8 else 2
        found = memory(items)
        done.extend(found)
        return found

    assert at_once(work, range(20)) == [10 * i for i in range(20)]
    assert memory.tried == [8, 8, 4, 2, 2, 2, 2, 2, 2]


def test_a_single_item_that_does_not_fit_is_an_error() -> None:
    memory = Memory(0)
    with pytest.raises(torch.OutOfMemoryError):
        Halving(4)(memory, range(5))
    assert memory.tried == [4, 2, 1]


def test_other_errors_of_the_work_are_not_swallowed() -> None:
    def work(items: Sequence[int]) -> list[int]:
        raise ValueError("no memory was harmed")

    with pytest.raises(ValueError, match="no memory was harmed"):
        Halving(4)(work, range(5))


def test_no_items_are_no_work() -> None:
    assert Halving(4)(Memory(1), []) == []
