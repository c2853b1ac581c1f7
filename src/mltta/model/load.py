"""Load a model by name, folder or file, ready on a device."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from mltta.errors import ConfigError
from mltta.model import weights as weights_
from mltta.model.acceleration import choose
from mltta.model.backbone import Backbone
from mltta.model.learned_prompts import AnyPrompts
from mltta.model.maple import with_prompts

log = logging.getLogger("mltta")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_backbone(
    model: str | None = None,
    weights: str | Path | None = None,
    *,
    device: str | torch.device = "auto",
    image_dtype: torch.dtype | str | None = None,
    quick_gelu: bool | None = None,
    allow_torchscript: bool = False,
    allow_remote_code: bool = False,
    random_weights: bool = False,
    prompts: AnyPrompts | str | Path | None = None,
    accelerate: bool | str | None = None,
) -> Backbone:
    """Load a frozen CLIP-style model by name, folder or file.

    Args:
        model: "RN50", "RN101", "ViT-B/32", "ViT-B/16", any open_clip "NAME" or "NAME:TAG",
            "hf-hub:ORG/REPO[@REVISION]", or a folder with open_clip_config.json.
        weights: a pretrained tag, or a local file (safetensors, state_dict, OpenAI's .pt archive).
        device: "auto" uses a GPU if there is one.
        image_dtype: precision of the image tower: float32, bfloat16 or float16 (default: bfloat16 on a GPU, float32 on
            a CPU). Texts and scores are always float32.
        quick_gelu: whether a local file was trained with the QuickGELU activation.
        allow_torchscript: open OpenAI's original archive (may execute code).
        allow_remote_code: run Python code included in a model's tokenizer, if its settings request it.
        random_weights: create an untrained model, for benchmarks; `Tagger` refuses it.
        prompts: learned prompts (CoOp or MaPLe), or a file of them.
        accelerate: False disables optimizations; names enable some of them (`mltta.accelerate.TRICKS`).
    """
    loaded = weights_.load(
        model,
        weights,
        quick_gelu=quick_gelu,
        allow_torchscript=allow_torchscript,
        allow_remote_code=allow_remote_code,
        random_weights=random_weights,
    )
    chosen = pick_device(device)
    backbone = Backbone(loaded, chosen, pick_dtype(image_dtype, chosen), choose(chosen, accelerate))
    gpu = chosen.type == "cuda"
    where = torch.cuda.get_device_name(chosen) if gpu else f"{torch.get_num_threads()} threads"
    log.debug("%s on %s (%s), images in %s", backbone.name, chosen, where, backbone.arithmetic)
    log.debug("%d views at a time through the image tower", backbone.image_tower.chunk)
    return backbone if prompts is None else with_prompts(backbone, prompts)


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve "auto" to an NVIDIA GPU if there is one, and raise if a device is not available.

    Apple's "mps" is used on request only; it is untested.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        if chosen.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError("unsupported device type")
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        there = ", ".join(["cpu", *gpus, *["mps"] * torch.backends.mps.is_available()])
        raise ConfigError(f"device {str(device)!r} is not available; choose from {there}") from error
    return chosen


def pick_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """The precision of an image tower: as given, else bfloat16 on an NVIDIA GPU and float32 elsewhere."""
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ConfigError(f"unknown precision {dtype!r} for images: choose from {', '.join(DTYPES)}")
    return DTYPES[dtype]
