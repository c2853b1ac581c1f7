"""Work done ahead: in order, never too far, by threads or processes, and nothing of it left behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from mltta.errors import ImageError
from mltta.session.execution import in_order

WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


def slower_first(key: int) -> tuple[int, int]:
    """The first keys take longest, so that they end last where several are worked on."""
    time.sleep(0.05 if key % 3 == 0 else 0.0)
    return key, os.getpid()


def left_over() -> list[object]:
    """What is still there of any pool."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("mltta-ahead")]
    return [*threads, *multiprocessing.active_children()]


@WORKERS
@pytest.mark.parametrize("ahead", [0, 1, 5, 100])
def test_results_come_in_the_order_of_their_keys(workers, ahead) -> None:
    found = list(in_order(slower_first, range(20), workers=workers, ahead=ahead))
    assert [key for key, _ in found] == list(range(20))
    assert left_over() == []


def test_processes_do_it_where_there_are_some_and_a_thread_of_this_one_where_not() -> None:
    elsewhere = {pid for _, pid in in_order(slower_first, range(12), workers=3, ahead=6)}
    assert os.getpid() not in elsewhere
    assert len(elsewhere) > 1
    assert {pid for _, pid in in_order(slower_first, range(12), workers=0, ahead=6)} == {os.getpid()}


def test_several_threads_work_at_once_and_results_keep_their_order() -> None:
    meet = threading.Barrier(3, timeout=10)  # opens only where three are at work together

    def work(key: int) -> int:
        if key < 3:
            meet.wait()
        return key

    assert list(in_order(work, range(9), workers=0, threads=3, ahead=5)) == list(range(9))
    assert left_over() == []


def threads_of_torch(_: int) -> int:
    return torch.get_num_threads()


def test_a_process_has_one_thread_of_torch() -> None:
    assert list(in_order(threads_of_torch, range(3), workers=1, ahead=1)) == [1, 1, 1]


def test_a_thread_is_given_the_keys_themselves() -> None:
    keys = [object() for _ in range(5)]
    assert all(a is b for a, b in zip(in_order(lambda key: key, keys, workers=0, ahead=2), keys, strict=True))


@WORKERS
def test_no_more_is_begun_than_is_asked_for_soon(workers) -> None:
    begun: list[int] = []

    def keys() -> Iterator[int]:
        for key in range(30):
            begun.append(key)
            yield key

    results = in_order(slower_first, keys(), workers=workers, ahead=4)
    assert begun == [], "nothing before the first is asked for"
    for asked in range(1, 20):
        next(results)
        assert len(begun) == asked + 4
    results.close()
    assert len(begun) == 23


def fails_at_three(key: int) -> int:
    if key == 3:
        raise ImageError("the fourth cannot be read")
    return key


@WORKERS
def test_an_error_of_the_work_reaches_the_caller_in_its_turn(workers) -> None:
    results = in_order(fails_at_three, range(9), workers=workers, ahead=6)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ImageError, match="the fourth cannot be read"):
        next(results)
    assert left_over() == []


@WORKERS
def test_an_error_of_the_keys_reaches_the_caller(workers) -> None:
    def keys() -> Iterator[int]:
        yield 0
        raise ValueError("no more keys")

    with pytest.raises(ValueError, match="no more keys"):
        list(in_order(slower_first, keys(), workers=workers, ahead=0))
    assert left_over() == []


def note(folder: Path, key: int) -> int:
    time.sleep(0.01)
    (folder / str(key)).touch()
    return key


@WORKERS
def test_closed_early_it_ends_its_pool_and_does_not_do_the_rest(workers, tmp_path) -> None:
    results = in_order(partial(note, tmp_path), range(1000), workers=workers, ahead=200)
    assert next(results) == 0
    assert left_over() != []
    results.close()
    assert left_over() == []
    assert len(list(tmp_path.iterdir())) < 100
