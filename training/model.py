"""The embedded model: an open_clip CLIP with ten blocks of a ViT-S/14 and a small causal text transformer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from safetensors.torch import load, load_file, save_file

from training import vit

WEIGHTS = "open_clip_model.safetensors"
PART = 15 * 2**20
SIDE = 196  # native input size
PREPROCESS = {
    "size": SIDE, "mode": "RGB", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bicubic",
    "resize_mode": "squash", "fill_color": 0,
}  # fmt: skip


def config(
    vocab_size: int,
    context_length: int = 40,
    embed_dim: int = 384,
    width: int = 192,
    layers: int = 6,
    image_width: int = 384,
    blocks: int = 10,
) -> dict[str, Any]:
    """open_clip's configuration of the model; width and layers are those of the text tower."""
    vision = {
        "image_size": SIDE, "patch_size": vit.PATCH, "width": image_width, "head_width": vit.HEAD,
        "layers": blocks, "ls_init_value": 1e-5, "no_ln_pre": True, "pool_type": "avg",
        "norm_kwargs": {"eps": 1e-6},
    }  # fmt: skip
    text = {
        "context_length": context_length, "vocab_size": vocab_size,
        "width": width, "heads": max(1, width // 64), "layers": layers,
    }  # fmt: skip
    return {"embed_dim": embed_dim, "vision_cfg": vision, "text_cfg": text}


def build(model_cfg: dict[str, Any]) -> CLIP:
    """Create the model with random weights."""
    return CLIP(**model_cfg)


def start_from_vit(model: CLIP, weights: dict[str, torch.Tensor]) -> None:
    """Initialize the image tower with the first blocks of the pretrained one; the projection stays random."""
    state = vit.first_blocks({k: v.float() for k, v in weights.items()}, model.visual.transformer.layers)
    missing, unexpected = model.visual.load_state_dict(state, strict=False)
    if missing != ["proj"] or unexpected:
        raise ValueError(f"the tower's weights do not fit: {missing} are missing, {unexpected} are unknown")


def encode_text(model: CLIP, tokens: torch.Tensor, length: int) -> torch.Tensor:
    """Unit text features of tokens (n, context), none longer than `length`.

    The tower is causal and pools at the end token, so everything after the longest text can be cut off.
    """
    tokens = tokens[:, :length].long()
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length].contiguous()))
    x = x[torch.arange(len(x), device=x.device), tokens.argmax(-1)] @ model.text_projection
    return torch.nn.functional.normalize(x.float(), dim=-1)


def encode_image(model: CLIP, pixels: torch.Tensor) -> torch.Tensor:
    """Unit image features."""
    return torch.nn.functional.normalize(model.visual(pixels).float(), dim=-1)


def save(folder: Path, state: dict[str, torch.Tensor], model_cfg: dict[str, Any], bpe: Path) -> None:
    """Write weights in half precision, configuration and vocabulary; `parts` contains the same in small files."""
    folder.mkdir(parents=True, exist_ok=True)
    half = {
        k: v.detach().cpu().half().contiguous() if v.is_floating_point() else v.cpu()
        for k, v in state.items()
    }
    for name, tensor in half.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"{name} is not finite in half precision")
    save_file(half, folder / WEIGHTS, metadata={"format": "pt"})
    parts = folder / "parts"
    parts.mkdir(exist_ok=True)
    for old in parts.glob(WEIGHTS + ".*"):
        old.unlink()
    data = (folder / WEIGHTS).read_bytes()
    for number, start in enumerate(range(0, len(data), PART)):
        (parts / f"{WEIGHTS}.{number:03d}").write_bytes(data[start : start + PART])
    text = json.dumps({"model_cfg": model_cfg, "preprocess_cfg": PREPROCESS}, indent=2) + "\n"
    for place in (folder, parts):
        (place / "open_clip_config.json").write_text(text)
        (place / "bpe.txt.gz").write_bytes(bpe.read_bytes())


def read(folder: Path) -> tuple[CLIP, SimpleTokenizer, Any]:
    """Load model, tokenizer and preprocessing from a folder written by `save` (whole or parts)."""
    settings = json.loads((folder / "open_clip_config.json").read_text())
    model = build(settings["model_cfg"])
    if (folder / WEIGHTS).exists():
        state = load_file(folder / WEIGHTS)
    else:
        state = load(b"".join(p.read_bytes() for p in sorted(folder.glob(WEIGHTS + ".*"))))
    model.load_state_dict(
        {k: v.float() if v.is_floating_point() else v for k, v in state.items()}, strict=True
    )
    text_cfg = settings["model_cfg"]["text_cfg"]
    tokenizer = SimpleTokenizer(str(folder / "bpe.txt.gz"), context_length=text_cfg["context_length"])
    pre = settings["preprocess_cfg"]
    preprocess = open_clip.image_transform(
        pre["size"], is_train=False, mean=tuple(pre["mean"]), std=tuple(pre["std"]),
        resize_mode=pre["resize_mode"], interpolation=pre["interpolation"],
    )  # fmt: skip
    return model.eval(), tokenizer, preprocess
