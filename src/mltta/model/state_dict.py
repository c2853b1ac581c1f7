"""Tensors of a local weights file, and the architecture inferred from their shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from mltta.errors import WeightsError
from mltta.storage.tensors import read_file


def read_state_dict(path: Path, allow_torchscript: bool = False) -> tuple[dict[str, Tensor], bool]:
    """Read tensors from a file without executing code; also return whether it is OpenAI's original archive."""
    found, is_openai = read_file(path, allow_torchscript)
    state = tensors_by_name(found)
    if not state:
        raise WeightsError(f"{path} does not contain a state_dict (named tensors)")
    is_openai |= "input_resolution" in state
    for extra in ("input_resolution", "context_length", "vocab_size"):
        state.pop(extra, None)
    return {key: v.float() if v.is_floating_point() else v for key, v in state.items()}, is_openai


def tensors_by_name(found: Any) -> dict[str, Tensor]:
    """The tensors of a checkpoint, without a trainer's wrapper; empty if it is something else."""
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict):
        return {}
    fits = all(isinstance(key, str) and isinstance(value, Tensor) for key, value in found.items())
    return {key.removeprefix("module."): value for key, value in found.items()} if fits else {}


def infer_config(state: dict[str, Tensor]) -> dict[str, Any]:
    """The open_clip configuration of a state_dict in OpenAI's layout, inferred from its shapes."""

    def count(prefix: str, at: int) -> int:
        return len({key.split(".")[at] for key in state if key.startswith(prefix)})

    try:
        width = state["ln_final.weight"].shape[0]
        lengths = {"context_length": "positional_embedding", "vocab_size": "token_embedding.weight"}
        text = {name: state[key].shape[0] for name, key in lengths.items()}
        text |= {"width": width, "heads": width // 64, "layers": count("transformer.resblocks.", 2)}
        vit = "visual.proj" in state
        conv, kept = ("conv1", "visual.") if vit else ("layer1.0.conv1", "visual.attnpool.")
        grid = round((state[f"{kept}positional_embedding"].shape[0] - 1) ** 0.5)
        vision: dict[str, Any] = {"width": state[f"visual.{conv}.weight"].shape[0]}
        if vit:
            patch = state["visual.conv1.weight"].shape[-1]
            vision |= {"layers": count("visual.transformer.resblocks.", 3), "patch_size": patch}
            vision["image_size"] = patch * grid
        else:
            vision["layers"] = tuple(count(f"visual.layer{stage}.", 2) for stage in (1, 2, 3, 4))
            vision["image_size"] = grid * 32
        return {"embed_dim": state["text_projection"].shape[1], "vision_cfg": vision, "text_cfg": text}
    except (KeyError, IndexError) as error:
        lacking = f"no {error.args[0]}" if isinstance(error, KeyError) else "unexpected tensor shapes"
        raise WeightsError(
            f"the file is not in OpenAI's CLIP layout ({lacking}); also give its architecture, "
            "e.g. --model ViT-B-16 --weights FILE"
        ) from error
