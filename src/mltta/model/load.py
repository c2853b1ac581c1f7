"""Load a model by name, folder or file, on a device and with an engine."""

from __future__ import annotations

import logging
import sys
from ctypes import CDLL
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltta.errors import ConfigError, needs_torch
from mltta.model.backbone import Backbone
from mltta.model.onnx_backbone import OnnxBackbone, is_exported
from mltta.storage.folders import MINI

if TYPE_CHECKING:
    import torch

    from mltta.model.learned_prompts import AnyPrompts

log = logging.getLogger("mltta")
ENGINES = ("auto", "onnx", "torch")


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
    engine: str = "auto",
    any_method: bool = True,
) -> Backbone:
    """Load a frozen CLIP-style model by name, folder or file.

    Args:
        model: "RN50", "RN101", "ViT-B/32", "ViT-B/16", any open_clip "NAME" or "NAME:TAG",
            "hf-hub:ORG/REPO[@REVISION]", or a folder with open_clip_config.json.
        weights: a pretrained tag, or a local file (safetensors, state_dict, OpenAI's .pt archive).
        device: "auto" uses a GPU if there is one.
        image_dtype: precision of the image tower: float32, bfloat16, float16 or, with ONNX Runtime, int8 (default:
            bfloat16 on a GPU, float32 on a CPU). Texts and scores are always float32.
        quick_gelu: whether a local file was trained with the QuickGELU activation.
        allow_torchscript: open OpenAI's original archive (may execute code).
        allow_remote_code: run Python code included in a model's tokenizer, if its settings request it.
        random_weights: create an untrained model, for benchmarks; `Tagger` refuses it.
        prompts: learned prompts (CoOp or MaPLe), or a file of them.
        accelerate: False disables optimizations; names enable some of them (`mltta.accelerate.TRICKS`).
        engine: "torch", "onnx" (ONNX Runtime, on a CPU) or "auto".
        any_method: whether methods that need PyTorch will use the model; if not, "auto" chooses ONNX Runtime on a CPU.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine = {engine!r}: choose from {', '.join(ENGINES)}")
    asked: dict[str, Any] = {"weights": weights, "image_dtype": image_dtype, "quick_gelu": quick_gelu}
    asked |= {"accelerate": accelerate, "random_weights": random_weights}
    here = find_spec("torch") is not None
    if engine != "torch":
        folder = MINI if model == "mini" else Path(model or "")
        needed = _only_torch(model, folder, str(device), {**asked, "prompts": prompts})
        if engine == "onnx" and needed:
            raise ConfigError(f"{needed} does not run on ONNX Runtime: --engine torch")
        if image_dtype == "int8" and needed:
            raise ConfigError(f"int8 needs ONNX Runtime, but {needed} does not run on it")
        if needed and not here:
            raise needs_torch(needed)
        wanted = engine == "onnx" or image_dtype == "int8" or not here
        if not needed and (wanted or not (any_method or (device == "auto" and has_gpu()))):
            log.debug("%s on ONNX Runtime", model)
            name = "mini" if model == "mini" else folder.name
            return OnnxBackbone(folder, name, str(image_dtype or "float32"))
    if not here:
        raise needs_torch("the engine torch")
    from mltta.model.torch_backbone import open_torch

    opened: dict[str, Any] = {"allow_torchscript": allow_torchscript, "allow_remote_code": allow_remote_code}
    backbone = open_torch(model, device=device, **asked, **opened)
    if prompts is None:
        return backbone
    from mltta.model.maple import with_prompts

    return with_prompts(backbone, prompts)


def _only_torch(model: str | None, folder: Path, device: str, asked: dict[str, Any]) -> str:
    """What of this does not run on ONNX Runtime, or nothing."""
    if model is None or not is_exported(folder):
        return f"the model {model or asked['weights']} (not mini, and not from `mltta models export`)"
    if device not in ("auto", "cpu"):
        return f"the device {device}"
    named = [name for name, value in asked.items() if value not in (None, False, "float32", "int8")]
    return f"the option {named[0]}" if named else ""


def has_gpu() -> bool:
    """Whether there is an NVIDIA driver; PyTorch takes seconds to ask."""
    names = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}
    try:
        return sys.platform in names and CDLL(names[sys.platform]).cuInit(0) == 0
    except (OSError, AttributeError):
        return False
