"""Norms folded into convolutions: the features of the plain tower, and towers of other kinds left alone."""

from __future__ import annotations

import copy

import open_clip
import pytest
import timm
import torch
from torch import nn

from mltta import load_backbone
from mltta.accelerate.cpu import fold_norms


def norms(module: nn.Module) -> int:
    return sum(isinstance(layer, nn.BatchNorm2d) for layer in module.modules())


def shaken(module: nn.Module) -> nn.Module:
    """Statistics and weights that are not those of a fresh norm, which would be folded into nothing."""
    generator = torch.Generator().manual_seed(0)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for values, low, high in (
                (layer.weight.data, 0.5, 1.5),
                (layer.bias.data, -0.5, 0.5),
                (layer.running_mean, -0.5, 0.5),
                (layer.running_var, 0.5, 1.5),
            ):
                values.copy_(torch.rand(values.shape, generator=generator) * (high - low) + low)
    return module.eval().requires_grad_(False)


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "efficientnet_b0"])
def test_a_folded_network_gives_the_map_and_the_answer_of_the_plain_one(name):
    plain = shaken(timm.create_model(name, num_classes=7))
    folded = copy.deepcopy(plain)
    before = norms(plain)
    assert fold_norms(folded) == before > 0
    assert norms(folded) == 0
    views = torch.randn(2, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for read in ("forward", "forward_features"):
            wanted, found = getattr(plain, read)(views), getattr(folded, read)(views)
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))


def test_clips_resnet_is_folded_and_gives_the_same_features():
    plain = shaken(open_clip.create_model("RN50", pretrained=None).visual)
    folded = copy.deepcopy(plain)
    assert fold_norms(folded) == norms(plain)
    views = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = plain(views), folded(views)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))


def test_mini_is_folded_on_a_cpu_and_keeps_its_fingerprint_and_features():
    fast, plain = (load_backbone("mini", device="cpu", accelerate=on) for on in (True, False))
    assert norms(fast.model.visual) == 0 < norms(plain.model.visual)
    assert fast.image_fingerprint == plain.image_fingerprint  # kept features and outputs go on
    views = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    assert (fast.image_tower(views) - plain.image_tower(views)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_other_towers_stay_as_they_are(name):
    tower = timm.create_model(name).eval()
    before = repr(tower)
    assert fold_norms(tower) == 0
    assert repr(tower) == before


def test_half_precision_stays_as_it_is():
    tower = shaken(timm.create_model("tf_efficientnet_lite0")).bfloat16()
    assert fold_norms(tower) == 0
