"""A small world to damage: the tiny model of the golden data as a folder, captions, photos, a dataset, a result."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.torch import load_file, save_file

from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.evaluation.evaluate import Evaluation, evaluate
from mltta.labels import LabelSet
from mltta.model.backbone import Backbone
from mltta.model.load import load_backbone
from mltta.model.weights import infer_config
from mltta.session.execution import Execution

GOLDEN = Path(__file__).parents[1] / "golden"
VIT = GOLDEN / "checkpoints/vit.safetensors"
LABELS = LabelSet.of(["dog", "cat", "sofa"])
TEXTS = ("A dog on a sofa.", "A cat beside a dog.", "A cat asleep.", "An empty sofa.", "A quiet lake.")


@cache
def backbone() -> Backbone:
    return load_backbone(None, VIT, quick_gelu=True)


@cache
def captions() -> CaptionBase:
    return CaptionBase.build(TEXTS, backbone())


def state() -> dict[str, Any]:
    return {name: value.float() for name, value in load_file(VIT).items()}


def config() -> dict[str, Any]:
    """What open_clip_config.json says of the tiny model."""
    return {"model_cfg": infer_config(state()) | {"quick_gelu": True}, "preprocess_cfg": {"mean": [0.5] * 3}}


def model_folder(folder: Path, said: dict[str, Any] | None = None) -> Path:
    """The tiny model as open_clip lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config() if said is None else said))
    save_file(state(), folder / "open_clip_model.safetensors")
    return folder


def photo(seed: int, size: tuple[int, int] = (48, 36)) -> Image.Image:
    """Coloured shapes; another seed shows others."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (4, 5, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def dataset(folder: Path, images: int = 6) -> Dataset:
    """Photos in files, with labels of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"photo{seed}.png" for seed in range(images)]
    for seed, path in enumerate(paths):
        photo(seed).save(path)
    targets = np.array([np.random.default_rng(seed).integers(0, 2, len(LABELS)) for seed in range(images)])
    return Dataset("toy", LABELS, tuple(path.name for path in paths), paths, targets.astype(np.int8))


def run(data: Dataset, methods: list[Any], out: Path, **options: Any) -> Evaluation:
    """Evaluate with the tiny model, the features kept beside the results."""
    given = {"captions": captions(), "cache": out / "features", "execution": Execution(2, 0), **options}
    return evaluate(data, backbone(), methods, out=out, **given)
