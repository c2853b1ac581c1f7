"""Numbers recorded from the authors' and peers' released code; see golden/README.md."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from mltta import load_backbone
from mltta.captions.labelled import LabelledCaptions
from mltta.labels import LabelSet
from mltta.model.backbone import Backbone
from mltta.model.label_encoder import LabelEncoder

GOLDEN = Path(__file__).parent / "golden"
SCALE = {"sharp": 4.605170249938965, "soft": 3.2188758850097656}


@cache
def backbone(arch: str, temperature: str = "sharp", accelerate: bool | None = None) -> Backbone:
    """The tiny random CLIP of the recordings, loaded through the public door."""
    file = GOLDEN / f"checkpoints/{arch}.safetensors"
    loaded = load_backbone(None, file, quick_gelu=True, device="cpu", accelerate=accelerate)
    loaded.logit_scale = float(torch.tensor(SCALE[temperature]).exp())
    return loaded


@cache
def tensors(path: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / path / "tensors.safetensors")


@cache
def manifest(path: str) -> dict:
    return json.loads((GOLDEN / path / "manifest.json").read_text())


@cache
def inputs(name: str) -> dict[str, Tensor]:
    return {
        k: v.float() if v.is_floating_point() else v
        for k, v in load_file(GOLDEN / f"inputs/{name}.safetensors").items()
    }


@cache
def captions(arch: str, classes: str) -> LabelledCaptions:
    given = json.loads((GOLDEN / f"inputs/captions_{classes}.json").read_text())
    index = {name: i for i, name in enumerate(given["class_names"])}
    embed = inputs(f"caption_embed_{arch}_{classes}")["caption_embed"]
    return LabelledCaptions(
        embed, [[index[name] for name in labels] for labels in given["labels"]], len(index)
    )


@cache
def class_names(path: str) -> LabelSet:
    return LabelSet.of(manifest(path)["class_names"])


def fixed_text(features: Tensor) -> LabelEncoder:
    """Labels whose text features (C, D) are given: an ensemble of templates, or numbers of a test's own."""
    encoder = backbone("vit").encode_labels(LabelSet.of(["dog"]))
    return LabelEncoder(encoder._tower, encoder._prompts, None, features=features)


@cache
def stream(views: int) -> Tensor:
    """Features (60, N, D) of the recorded stream of images; view 0 is the image itself."""
    given = inputs("stream_vit")
    noise = torch.cat([torch.zeros_like(given["noise"][:1]), 0.5 * given["noise"]])[:views]
    return torch.stack([backbone("vit").encode_images(image + noise) for image in given["images"]])
