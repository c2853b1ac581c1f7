"""How a run is carried out: what is chosen, what can be told, and how it goes on when memory runs out."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch

from mltta import load_backbone
from mltta.errors import ConfigError
from mltta.session import execution
from mltta.session.execution import COMPILED_IMAGES, Execution


@pytest.fixture(scope="module")
def mini():
    return load_backbone("mini", device="cpu")


def test_what_is_told_is_done(mini) -> None:
    told = Execution(batch_size=3, threads=5)
    assert (mini.engine.batches(told.batch_size).size, told.decoders(mini)) == (3, 5)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"batch_size": -1}, {"workers": -1}, {"threads": 0}])
def test_what_cannot_be_done_is_refused(wrong) -> None:
    with pytest.raises(
        ConfigError, match="batch size and threads must be at least 1, and workers at least 0"
    ):
        Execution(**wrong)


@pytest.mark.parametrize(("threads", "images"), [(1, 1), (3, 3), (40, 8)])
def test_a_cpu_works_on_as_many_images_as_it_has_threads_and_on_no_more_than_eight(
    mini, monkeypatch, threads, images
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert mini.engine.batches().size == images


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
        at_once, threads = backbone.engine.batches().size, Execution().decoders(backbone)
    said = [f"{at_once} images at a time", f"decoding images with {threads} threads"]
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
