"""How a run is carried out: what is chosen, what can be told, and that results do not hang on it."""

from __future__ import annotations

import logging

import pytest
import torch

from mltta import Tagger, create_method, load_backbone
from mltta.errors import ConfigError
from mltta.pipeline.execution import COMPILED_IMAGES, Execution

PHOTO = "examples/photos/cat.jpg"


@pytest.fixture(scope="module")
def mini():
    return load_backbone("mini", device="cpu")


def test_what_is_told_is_done(mini) -> None:
    told = Execution(batch_size=3, workers=2, jacobian=True)
    assert (told.images_at_once(mini), told.processes(mini)) == (3, 2)
    method = create_method("tpt", mini, ["dog", "cat"])
    told.apply(method)
    assert method.text.jacobian is True


def test_choices_are_logged_for_those_who_ask(mini, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mltta"):
        assert Execution().images_at_once(mini) == 8
        assert Execution().processes(mini) >= 0
        load_backbone("mini", device="cpu")
    said = caplog.text
    for word in ("8 images at a time", "processes decode", "mini on cpu", "float32", "8 views at a time"):
        assert word in said


def test_a_cpu_compiles_only_when_told(mini) -> None:
    Execution().prepare(mini, COMPILED_IMAGES)
    assert mini.image_tower.compiled_for == 0


def test_where_compiling_fails_the_tower_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")  # the compiler that torch would call
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("/bin/false",))
    backbone = load_backbone("ViT-S-32", device="cpu", random_weights=True)
    before = backbone.encode_images(torch.zeros(2, 3, 224, 224))
    Execution(compile=True).prepare(backbone, 1)
    assert "could not be compiled" in caplog.text
    assert torch.equal(backbone.encode_images(torch.zeros(2, 3, 224, 224)), before)


def test_precision_can_be_told_by_name() -> None:
    assert load_backbone("mini", device="cpu", image_dtype="bfloat16").image_dtype == torch.bfloat16
    with pytest.raises(ConfigError, match="choose from float32, bfloat16, float16"):
        load_backbone("mini", device="cpu", image_dtype="int4")


def test_a_kept_jacobian_gives_the_same_tags(mini) -> None:
    with_it, without = (
        Tagger(mini, ["cat", "dog", "sofa"], views=8, jacobian=keep)(PHOTO) for keep in (True, False)
    )
    assert [item["label"] for item in with_it] == [item["label"] for item in without]
    for one, other in zip(with_it, without, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)
