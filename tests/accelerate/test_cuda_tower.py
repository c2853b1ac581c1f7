"""A compiled image tower: one size of passes, the same features, and no harm where compiling fails."""

from __future__ import annotations

import pytest
import torch

from mltta import load_backbone
from mltta.accelerate.cuda_tower import CudaImageTower
from mltta.model.backbone import Backbone
from tests import golden_data as golden


def tower(backbone: Backbone) -> CudaImageTower:
    """The tower of a GPU, on the CPU."""
    return CudaImageTower(
        backbone.model.encode_image, backbone.device, torch.float32, backbone.preprocess.size
    )


def test_where_compiling_fails_the_tower_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "/bin/false")  # the compiler that torch would call
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("/bin/false",))
    made = tower(load_backbone("ViT-S-32", device="cpu", random_weights=True))
    before = made(torch.zeros(2, 3, 224, 224))
    made.compile()
    assert "cannot compile the image tower" in caplog.text
    assert made.compiled_for == 0
    assert torch.equal(made(torch.zeros(2, 3, 224, 224)), before)


@pytest.mark.parametrize("views", [1, 3, 4, 6, 7, 8, 11, 19])
def test_passes_of_a_compiled_tower_are_filled_up_and_what_was_filled_is_dropped(monkeypatch, views) -> None:
    seen: list[int] = []

    def compiled(forward):
        return lambda pixels: seen.append(len(pixels)) or forward(pixels)

    monkeypatch.setattr(torch, "compile", compiled)
    backbone = golden.backbone("vit")
    made = tower(backbone)
    pixels = golden.inputs("views_vit")["views"][:views]
    want = made(pixels)
    made.compile(6)
    assert (made.compiled_for, made.chunk) == (6, 6)
    torch.testing.assert_close(made(pixels), want, atol=1e-6, rtol=0)
    # the first is the compiler's own; a rest of no more than half a pass is not worth filling up
    assert seen == [6] * (1 + views // 6 + (views % 6 > 3))
