"""Weights from every place they may come from, and clear words when they do not fit."""

from __future__ import annotations

import json
import pickle

import open_clip
import pytest
import torch
from safetensors.torch import load_file, save_file

from mltta import load_backbone
from mltta.errors import WeightsError
from mltta.model.weights import PAPER_MODELS, infer_config, load, read_state_dict
from tests.golden_data import GOLDEN

VIT = GOLDEN / "checkpoints/vit.safetensors"


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {k: v.float() for k, v in load_file(VIT).items()}


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def want(pixels) -> torch.Tensor:
    return load_backbone(None, VIT, quick_gelu=True).encode_images(pixels)


def test_the_layout_of_an_openai_file_is_read_off_its_shapes():
    vit = infer_config(load_file(VIT))
    assert vit["vision_cfg"] == {"layers": 2, "width": 64, "patch_size": 8, "image_size": 32}
    assert vit["text_cfg"]["heads"] == 1
    resnet = infer_config(load_file(GOLDEN / "checkpoints/rn.safetensors"))
    assert resnet["vision_cfg"] == {"layers": (1, 1, 1, 1), "width": 8, "image_size": 64}


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in s.items()}}]
)
def test_a_state_dict_loads_bare_or_from_a_training_checkpoint(tmp_path, state, pixels, want, wrap):
    path = tmp_path / "model.pt"
    torch.save(wrap(state), path)
    assert torch.equal(load_backbone(None, path, quick_gelu=True).encode_images(pixels), want)


def test_openais_torchscript_archive_needs_an_explicit_yes_and_brings_quick_gelu(
    tmp_path, state, pixels, want
):
    loaded = load(None, VIT, quick_gelu=True)
    holder = torch.nn.Module()
    for key, value in loaded.model.state_dict().items():
        parts, module = key.split("."), holder
        for part in parts[:-1]:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Module())
            module = getattr(module, part)
        module.register_parameter(parts[-1], torch.nn.Parameter(value, requires_grad=False))
    archive = torch.jit.script(holder)
    path = tmp_path / "ViT-tiny.pt"
    archive.save(path)
    with pytest.raises(WeightsError, match="allow-torchscript"):
        load_backbone(None, path)
    backbone = load_backbone(
        None, path, allow_torchscript=True
    )  # no quick_gelu asked: the archive is OpenAI's
    assert torch.equal(backbone.encode_images(pixels), want)


def test_a_local_folder_loads_by_its_config(tmp_path, state, pixels, want):
    config = infer_config(state) | {"quick_gelu": True}
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}
    (tmp_path / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": preprocess})
    )
    save_file(state, tmp_path / "open_clip_model.safetensors")
    backbone = load_backbone(str(tmp_path))
    assert torch.equal(backbone.encode_images(pixels), want)
    assert backbone.preprocess.resize_mode == "squash"
    assert backbone.preprocess.mean == (0.5, 0.5, 0.5)


def test_a_file_that_does_not_say_its_activation_is_never_guessed():
    with pytest.raises(WeightsError, match=r"--quick-gelu.*--no-quick-gelu"):
        load_backbone(None, VIT)


@pytest.mark.parametrize("name", PAPER_MODELS)
def test_openai_tags_of_the_papers_models_are_built_with_quick_gelu(name, monkeypatch):
    asked = {}

    def create_model(arch, pretrained, require_pretrained, force_quick_gelu):
        asked.update(arch=arch, tag=pretrained, quick_gelu=force_quick_gelu)
        raise RuntimeError("stop here")

    monkeypatch.setattr(open_clip, "create_model", create_model)
    with pytest.raises(WeightsError):
        load(name)
    assert asked == {"arch": PAPER_MODELS[name], "tag": "openai", "quick_gelu": True}
    with pytest.raises(WeightsError):
        load("ViT-B-32:laion2b_s34b_b79k")
    assert asked == {"arch": "ViT-B-32", "tag": "laion2b_s34b_b79k", "quick_gelu": False}


def test_offline_without_weights_the_error_names_the_ways_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        WeightsError, match=r"(?s)ViT-B/16:openai are not on this machine.*mini.*internet.*HF_HOME.*--weights"
    ):
        load_backbone("ViT-B/16")


class Bomb:
    def __reduce__(self):
        return (print, ("code ran",))


def test_a_pickle_with_code_in_it_is_refused_and_does_not_run(tmp_path, capsys):
    path = tmp_path / "model.pt"
    torch.save({"state_dict": {"x": Bomb()}}, path)
    with pytest.raises(WeightsError, match="refused"):
        read_state_dict(path)
    raw = tmp_path / "raw.pth"
    raw.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(WeightsError):
        read_state_dict(raw)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.safetensors", b"not tensors"), ("a.pt", b"hello"), ("a.bin", b""), ("a.safetensors", b"")],
)
def test_wrong_files_in_place_of_weights_are_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=name.replace(".", r"\.")):
        load_backbone(None, path, quick_gelu=True)


def test_missing_files_unknown_models_and_unknown_tags_are_named(tmp_path):
    with pytest.raises(WeightsError, match=r"no (such )?weights file"):
        load_backbone("ViT-B/16", tmp_path / "none.safetensors", quick_gelu=True)
    with pytest.raises(WeightsError, match=r"unknown model 'ViT-Z/3'.*ViT-B/16"):
        load_backbone("ViT-Z/3")
    with pytest.raises(WeightsError, match=r"no weights 'nope'.*openai"):
        load_backbone("ViT-B-32:nope")
    with pytest.raises(WeightsError, match=r"open_clip_config\.json is missing"):
        load_backbone(str(tmp_path))


def test_weights_that_do_not_fit_the_named_model_say_so(state):
    with pytest.raises(WeightsError, match=r"does not fit ViT-B/16"):
        load_backbone("ViT-B/16", VIT, quick_gelu=True)
    with pytest.raises(WeightsError, match="not in OpenAI's CLIP layout"):
        infer_config({"weight": torch.zeros(1)})
