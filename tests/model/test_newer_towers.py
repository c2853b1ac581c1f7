"""Newer models that open_clip offers, made small, with random weights: what each supports, or the reason it does not.

The table in docs/models.md has one row per model of this file.
"""

from __future__ import annotations

import copy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import open_clip
import pytest
import timm
import torch
from open_clip import factory

from benchmarks.towers import load
from mltta import LabelSet, Tagger, create_method, encode_images
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.model import vocabulary
from mltta.model.backbone import Backbone
from mltta.model.local import local_path
from tests.images.test_views import noise

VIT = {"embed_dim": 32, "depth": 2, "num_heads": 2}
FASTVIT = {"layers": (1, 1, 1, 1)}
#: by open_clip's name: what makes the image tower small; how it is looked at closely; whether its context is tuned
TOWERS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "ViT-B-16-SigLIP": (VIT, "map", True),
    "ViT-SO400M-14-SigLIP2": (VIT, "map", True),
    "PE-Core-T-16-384": (VIT, "tiles", True),
    "ViT-H-14-worldwide-quickgelu": ({}, "map", True),
    "MobileCLIP2-S0": (FASTVIT, "map", True),
    "MobileCLIP2-B": ({"depth": 2}, "tiles", True),
    "EVA02-B-16": (VIT, "tiles", True),
    "ViT-B-16-quickgelu": ({}, "map", True),
    "coca_ViT-B-32": ({}, "tiles", False),
}
LABELS = ["dog", "traffic light", "cat", "boat"]
CAPTIONS = ["A dog beside a cat.", "A boat.", "A traffic light and a dog in the street."]
PHOTOS = [noise(80, 60, seed=i) for i in range(3)]


def small(name: str) -> dict[str, Any]:
    """open_clip's own settings, with few layers of few channels and CLIP's vocabulary."""
    config = copy.deepcopy(open_clip.get_model_config(name))
    assert config is not None
    text = {"width": 32, "heads": 2, "layers": 2, "vocab_size": 49408}
    config["text_cfg"] |= text
    config["embed_dim"] = 32
    if "multimodal_cfg" in config:
        config["multimodal_cfg"] |= text | {"attn_pooler_heads": 2}
        config["vision_cfg"]["attn_pooler_heads"] = 2
    if "timm_model_name" not in config["vision_cfg"]:
        config["vision_cfg"] |= {"layers": 2, "width": 32, "head_width": 16}
    return config


@lru_cache(maxsize=len(TOWERS))
def tower(name: str) -> Backbone:
    make = partial(timm.create_model, **TOWERS[name][0])
    with mock.patch.dict(factory._MODEL_CONFIGS, {name: small(name)}), mock.patch("timm.create_model", make):
        return load(name, "cpu")


@pytest.fixture(autouse=True)
def few_words(monkeypatch, tmp_path):
    """A background of few words, kept nowhere."""
    every = vocabulary.words()[:40]
    monkeypatch.setattr(vocabulary, "words", lambda: every)
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path))


def captions(backbone: Backbone) -> LabelledCaptions:
    return LabelledCaptions(backbone.encode_texts(CAPTIONS), [[0, 2], [3], [1, 0]], len(LABELS))


@pytest.mark.parametrize("name", TOWERS)
def test_images_and_texts_are_encoded_as_open_clip_does(name):
    backbone = tower(name)
    pixels = torch.randn(2, 3, *[backbone.preprocess.size] * 2)
    want = backbone.model.encode_image(pixels, normalize=True)
    torch.testing.assert_close(backbone.encode_images(pixels), want, atol=1e-4, rtol=0)
    texts = ["a photo of a dog.", *CAPTIONS]
    want = backbone.model.encode_text(backbone.tokenizer(texts), normalize=True)
    torch.testing.assert_close(backbone.encode_texts(texts), want, atol=1e-5, rtol=0)
    labels = backbone.encode_labels(LabelSet.of(LABELS)).features
    prompts = backbone.tokenizer([f"a photo of a {label}." for label in LABELS])
    torch.testing.assert_close(labels, backbone.model.encode_text(prompts, normalize=True), atol=1e-5, rtol=0)
    assert len({row.numpy().tobytes() for row in labels}) == len(LABELS)


@pytest.mark.parametrize("name", TOWERS)
def test_auto_gives_each_photo_scores_of_its_own(name):
    backbone = tower(name)
    assert ("map" if local_path(backbone.model.visual) else "tiles") == TOWERS[name][1]
    tagger = Tagger(
        backbone, LABELS, method="auto", captions="none", template="a photo of a {}.", effort="fast"
    )
    scores = torch.tensor([[item["score"] for item in sorted(tags, key=str)] for tags in tagger(PHOTOS)])
    assert scores.isfinite().all()
    assert (scores.std(dim=0) > 0).all()


@pytest.mark.parametrize("name", TOWERS)
def test_ml_tta_tunes_the_context_or_says_why_it_cannot(name):
    backbone = tower(name)
    make = partial(create_method, "ml-tta", backbone, LABELS, captions=captions(backbone), views=4)
    if not TOWERS[name][2]:
        with pytest.raises(ConfigError, match=r"tunes the words in front of a label.*Use --method clip"):
            make()
        return
    method = make(select_ratio=0.5)
    encoded = encode_images(backbone, PHOTOS, method.needs)
    tuned, untouched = method(encoded), create_method("clip", backbone, LABELS)(encoded)
    assert tuned.isfinite().all()
    assert not torch.allclose(tuned, 2 * untouched, atol=1e-4)  # the step changed the prompts
    still = create_method("ml-tta", backbone, LABELS, captions=captions(backbone), views=4, steps=0)
    torch.testing.assert_close(still(encoded), 2 * untouched, atol=1e-3, rtol=0)


def test_the_table_of_the_docs_says_what_was_tested():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:2] == "| "
    ]
    table = {
        cells[1].strip("`"): (cells[3], cells[4]) for cells in rows if len(cells) == 5 and cells[1][0] == "`"
    }
    words = {"map": "windows", "tiles": "tiles", True: "yes", False: "no"}
    assert table == {name: (words[look], words[tuned]) for name, (_, look, tuned) in TOWERS.items()}
