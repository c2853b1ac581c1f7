"""The pretrained tower is read from an ONNX file whose matrices have no names."""

from __future__ import annotations

import pytest
import torch

from tests.training.standins import write_tower
from training import model, vit
from training.optimise import Optimiser
from training.windows import CELL, features, locations


@pytest.fixture(scope="module")
def tower(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    path = tmp_path_factory.mktemp("tower") / "tower.onnx"
    written = write_tower(path)
    return written, vit.read(path, 14)


def test_matrices_are_found_by_their_biases(tower: tuple[dict[str, torch.Tensor], ...]) -> None:
    written, state = tower
    for i in range(3):
        old, new = f"encoder.layer.{i}", f"transformer.resblocks.{i}"
        assert torch.equal(state[f"{new}.mlp.c_proj.weight"], written[f"{old}.mlp.fc2.weight"])
        parts = [written[f"{old}.attention.attention.{part}.weight"] for part in ("query", "key", "value")]
        assert torch.equal(state[f"{new}.attn.in_proj_weight"], torch.cat(parts))
        assert torch.equal(state[f"{new}.ls_2.gamma"], written[f"{old}.layer_scale2.lambda1"])


def test_pixels_are_normalized_inside_the_first_layer(tower: tuple[dict[str, torch.Tensor], ...]) -> None:
    written, state = tower
    pixels = torch.rand(2, 3, 196, 196)
    normalized = (pixels - vit.MEAN[:, None, None]) / vit.STD[:, None, None]
    weight, bias = (written[f"embeddings.patch_embeddings.projection.{kind}"] for kind in ("weight", "bias"))
    wanted = torch.nn.functional.conv2d(normalized, weight, bias, stride=14).flatten(2).transpose(1, 2)
    found = (
        torch.nn.functional.conv2d(2 * pixels - 1, state["conv1.weight"], stride=14)
        .flatten(2)
        .transpose(1, 2)
    )
    held = torch.nn.functional.interpolate(
        written["positions"].T.reshape(1, -1, 37, 37), (14, 14), mode="bicubic", antialias=True
    )
    positions = held[0].flatten(1).T
    assert torch.allclose(found + state["positional_embedding"][1:], wanted + positions, atol=1e-4)


def test_blocks_at_the_end_are_cut_off_and_the_mean_of_the_map_is_the_feature(
    tower: tuple[dict[str, torch.Tensor], ...],
) -> None:
    clip = model.build(model.config(600, embed_dim=32, width=64, layers=1, image_width=64, blocks=2)).eval()
    model.start_from_vit(clip, tower[1])
    assert torch.equal(
        clip.visual.transformer.resblocks[1].mlp.c_fc.bias, tower[1]["transformer.resblocks.1.mlp.c_fc.bias"]
    )
    pixels = torch.randn(2, 3, model.SIDE, model.SIDE)
    with torch.inference_mode():
        maps = locations(clip, pixels)
        assert maps.shape[-2:] == (model.SIDE // CELL, model.SIDE // CELL)
        assert torch.allclose(features(clip, maps, 0)[:, 0], model.encode_image(clip, pixels), atol=1e-5)


def test_weights_that_do_not_fit_are_refused(tower: tuple[dict[str, torch.Tensor], ...]) -> None:
    clip = model.build(model.config(600, embed_dim=32, width=64, layers=1, image_width=64, blocks=2))
    less = {name: value for name, value in tower[1].items() if name != "ln_post.bias"}
    with pytest.raises(ValueError, match=r"ln_post\.bias"):
        model.start_from_vit(clip, less)


def test_earlier_blocks_learn_more_slowly() -> None:
    names = [f"visual.transformer.resblocks.{i}.ln_1.weight" for i in range(3)]
    more = ["visual.conv1.weight", "visual.ln_post.weight", "visual.proj", "text_projection"]
    parameters = {name: torch.nn.Parameter(torch.zeros(2, 2)) for name in (*names, *more)}
    found = Optimiser(parameters, (), lr=1.0, lr_image=0.1, decay=0.0, warmup=0.0, layer_decay=0.5)
    rates = {id(p): group["peak"] for group in found.adam.param_groups for p in group["params"]}
    assert [rates[id(p)] for p in parameters.values()] == [0.025, 0.05, 0.1, 0.025, 0.1, 1.0, 1.0]
