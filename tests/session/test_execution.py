"""How a run is carried out: what is chosen, what can be told, and how it goes on when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from mltta import load_backbone
from mltta.errors import ConfigError
from mltta.session import execution
from mltta.session.execution import COMPILED_IMAGES, Execution, Halving


@pytest.fixture(scope="module")
def mini():
    return load_backbone("mini", device="cpu")


def test_what_is_told_is_done(mini) -> None:
    told = Execution(batch_size=3, threads=5)
    assert (told.images_at_once(mini), told.decoders(mini)) == (3, 5)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": -1}, {"workers": -1}, {"threads": 0}])
def test_what_cannot_be_done_is_refused(wrong) -> None:
    with pytest.raises(ConfigError, match="a batch size and threads of at least 1 and 0 or more workers"):
        Execution(**wrong)


@pytest.mark.parametrize(("threads", "images"), [(1, 1), (3, 3), (40, 8)])
def test_a_cpu_works_on_as_many_images_as_it_has_threads_and_on_no_more_than_eight(
    mini, monkeypatch, threads, images
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert Execution().images_at_once(mini) == images


@pytest.mark.parametrize(("cores", "on_cpu", "beside"), [(1, 1, 1), (2, 2, 2), (12, 8, 12), (64, 8, 16)])
def test_as_many_threads_decode_as_there_are_cores_and_beside_a_gpu_up_to_sixteen(
    mini, monkeypatch, cores, on_cpu, beside
) -> None:
    monkeypatch.setattr(execution, "cores", lambda: cores)
    beside_a_gpu = SimpleNamespace(device=torch.device("cuda"))
    assert (Execution().decoders(mini), Execution().decoders(beside_a_gpu)) == (on_cpu, beside)


def test_choices_are_logged_for_those_who_ask(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mltta"):
        backbone = load_backbone("mini", device="cpu")
        at_once, threads = Execution().images_at_once(backbone), Execution().decoders(backbone)
    said = [f"{at_once} images at a time", f"{threads} threads decode"]
    for word in (*said, "mini on cpu", "float32", "8 views at a time"):
        assert word in caplog.text


@pytest.mark.parametrize(
    ("device", "images", "told", "compiled"),
    [
        ("cuda", COMPILED_IMAGES, None, True),
        ("cuda", COMPILED_IMAGES - 1, None, False),
        ("cuda", COMPILED_IMAGES, False, False),
        ("cpu", COMPILED_IMAGES, None, False),
        ("cpu", 1, True, True),
    ],
)
def test_long_runs_on_a_gpu_compile_the_image_tower_and_others_when_told(
    device, images, told, compiled
) -> None:
    calls: list[bool] = []
    tower = SimpleNamespace(compile=lambda: calls.append(True))
    backbone = SimpleNamespace(device=torch.device(device), image_tower=tower)
    Execution(compile=told).prepare(backbone, images)
    assert calls == [True] * compiled


def test_precision_can_be_told_by_name() -> None:
    assert load_backbone("mini", device="cpu", image_dtype="bfloat16").image_dtype == torch.bfloat16
    with pytest.raises(ConfigError, match="choose from float32, bfloat16, float16"):
        load_backbone("mini", device="cpu", image_dtype="int4")


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
    assert "out of GPU memory: 3 images at a time from here on" in caplog.text
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
