"""The embedded model on the sample photographs: real tags, offline, within its limits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from mltta import Tagger, load_backbone
from mltta.captions import store
from mltta.captions.store import default_captions
from mltta.storage.folders import MINI

ROOT = Path(__file__).parents[2]
PHOTOS = ROOT / "examples" / "photos"
SHOWN = {  # by eye: what the photograph shows, and what the tagger must find at least
    "astronaut.jpg": ({"person", "helmet", "flag", "uniform"}, "person"),
    "cat.jpg": ({"cat"}, "cat"),
    "officer.jpg": (
        {"person", "hat", "uniform", "flag", "helmet"},
        "hat",
    ),  # helmet is wrong: it is a peaked cap
    "photographer.jpg": ({"person", "tripod", "camera", "grass", "building"}, "tripod"),
}


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger(load_backbone("mini", device="cpu"), ROOT / "examples" / "labels.txt")


def test_the_embedded_files_keep_their_size():
    weights = sum(f.stat().st_size for f in MINI.iterdir() if f.is_file())
    captions = sum(f.stat().st_size for f in (MINI / "captions").iterdir())
    assert weights <= 33e6
    assert captions <= 7.5e6


@pytest.mark.parametrize("photo", SHOWN)
def test_every_label_called_present_on_a_sample_photograph_is_right(tagger, photo):
    shown, least = SHOWN[photo]
    present = tagger(PHOTOS / photo).present
    assert least in present
    assert set(present) <= shown


def test_a_list_that_has_nothing_to_do_with_the_photograph_gives_no_labels():
    tags = Tagger(load_backbone("mini", device="cpu"), ["zebra", "pizza", "toilet"])(PHOTOS / "cat.jpg")
    assert tags.present == []
    assert len(tags) == 3


def test_mini_is_the_default_and_its_captions_belong_to_it(tagger):
    assert tagger.backbone.name == "mini"
    base = default_captions(tagger.backbone)
    assert len(base) == 16_000
    again = tagger.backbone.encode_texts(base.texts[:50])
    assert (again.numpy() * base.embeddings[:50]).sum(-1).min() > 0.999


def test_a_folder_called_mini_with_another_text_tower_is_not_the_embedded_model(tmp_path, monkeypatch):
    """It was taken for it by name: its captions were refused, and no tagger could be made."""
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "read_texts", lambda path: ["A dog.", "A cat on a sofa."])
    torch.manual_seed(0)
    config = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1}
    vision = {"layers": 1, "width": 64, "patch_size": 16, "image_size": 32}
    model = open_clip.CLIP(embed_dim=32, vision_cfg=vision, text_cfg=config)
    folder = tmp_path / "mini"
    folder.mkdir()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    held = {"model_cfg": {"embed_dim": 32, "vision_cfg": vision, "text_cfg": config}, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(held))
    other = load_backbone(str(folder), device="cpu")
    assert other.name == "mini"
    assert not other.is_embedded
    assert default_captions(other).fingerprint == other.text_fingerprint
    copied = tmp_path / "copied"
    shutil.copytree(MINI, copied)
    same = load_backbone(str(copied), device="cpu")
    assert (same.name, same.is_embedded) == ("copied", True)
    assert len(default_captions(same)) == 16_000


def test_mini_knows_dogs_from_boats_in_words():
    backbone = load_backbone("mini", device="cpu")
    a, b, c = backbone.encode_texts(["a photo of a dog.", "a puppy on the grass", "a boat at sea"])
    assert a @ b > a @ c + 0.2


def test_the_logit_scale_is_the_models_own():
    backbone = load_backbone("mini", device="cpu")
    assert 30 < backbone.logit_scale < 50
    assert backbone.logit_scale == pytest.approx(backbone.model.logit_scale.exp().item())


def test_another_process_without_a_hub_tags_a_photograph(tmp_path):
    code = "import sys; from mltta.cli import main; sys.argv = ['mltta', *sys.argv[1:]]; main()"
    env = {
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "MLTTA_CACHE": str(tmp_path),
    }
    args = [
        "tag",
        str(PHOTOS / "cat.jpg"),
        "--labels",
        "cat, dog, sofa",
        "--format",
        "json",
        "--method",
        "clip",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, env=env, check=True
    )
    assert json.loads(done.stdout)[0]["present"] == ["cat"]


def test_a_gradient_step_moves_scores_but_not_the_model():
    backbone = load_backbone("mini", device="cpu")
    before = {k: v.clone() for k, v in backbone.model.state_dict().items()}
    still, moved = (
        list(Tagger(backbone, ["cat", "dog", "sofa"], "ml-tta", views=8, steps=steps)(PHOTOS / "cat.jpg"))
        for steps in (0, 1)
    )
    assert still != moved
    after = backbone.model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before)
