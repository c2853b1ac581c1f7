"""Writes a model's towers as ONNX graphs, which read their weights from the model's own safetensors file."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from mltta.errors import ConfigError, WeightsError
from mltta.model import model_folder as folder_
from mltta.model.onnx_backbone import ABOUT, IMAGE, TEXT, OnnxBackbone, write_about
from mltta.model.onnx_vit import AveragedViT, is_averaged, run_blocks
from mltta.storage import atomic, checksums
from mltta.storage.tensors import to_bytes

if TYPE_CHECKING:
    from mltta.model.torch_backbone import TorchBackbone

OPSET = 18  # the first that resizes with antialiasing
#: safetensors' names of the kinds of numbers, and ONNX's; what is not float32 is cast when a graph is opened
KINDS = {"F32": 1, "F16": 10, "BF16": 16}
#: largest relative difference between an exported feature and the model's own
TOLERANCE = 1e-3


class _Image(nn.Module):
    """Pixels to features (N, D) and, where the tower has a map, its locations (N, h, w, D)."""

    def __init__(self, backbone: TorchBackbone, fixed: bool):
        super().__init__()
        self.visual, self._local = backbone.model.visual, None if fixed else backbone.local

    def forward(self, pixels: Tensor) -> Any:
        cells = None if self._local is None else self._local(pixels)
        if cells is not None and getattr(getattr(self._local, "func", None), "__name__", "") == "_cnn":
            return cells.mean(
                dim=(1, 2)
            ), cells  # the same as the global feature, and the network is there once
        features = self.visual(pixels)
        return features if cells is None else (features, cells)


class _Text(nn.Module):
    """Tokens (N, L), cut behind the longest text, and the place of each one's last token, to unit features."""

    def __init__(self, backbone: TorchBackbone):
        super().__init__()
        self.root, self._tower = backbone.tower.root, backbone.tower

    def forward(self, tokens: Tensor, end: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self._tower.embed(tokens) + self._tower.positions[:length]
        hidden = torch.ones_like(tokens[0]).cumsum(
            0
        )  # not the mask of the tower, whose slice would be of one length
        mask = (hidden[None, :] > hidden[:, None]) * -1e9
        x = run_blocks(self._tower.blocks, x, mask)
        chosen = end[:, None, None].expand(-1, 1, x.shape[-1])
        return self._tower.project(x.gather(1, chosen)[:, 0])


def export_model(backbone: Any, folder: Path, source: Path | None = None) -> None:
    """Write a model folder that both engines load, and compare its features with the model's.

    Args:
        backbone: on a CPU in float32, not accelerated.
        source: the model's own folder, if it has one.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ConfigError("exporting needs onnx: pip install 'mltta[export]'") from None
    if not (backbone.tower.tunable and backbone.tower.causal):
        raise ConfigError(f"{backbone.name} cannot be exported: its text tower is not a causal transformer")
    folder.mkdir(parents=True, exist_ok=True)
    _write_model(backbone, folder, source)
    weights = folder_.find_weights(folder)
    side, wide = backbone.preprocess.size, {"pixels": {0: "n", 2: "h", 3: "w"}}
    text = {"tokens": {0: "n", 1: "l"}, "end": {0: "n"}}
    words = backbone.tokenizer(["a dog", "a photo of a cat"], context_length=backbone.context_length)[:, :8]
    root = "" if hasattr(backbone.model, "token_embedding") else "text."
    _trace(_Text(backbone), (words, words.argmax(-1)), folder / TEXT, text, ["features"], weights, root)
    about = {"text": backbone.text_fingerprint, "image": backbone.image_fingerprint}
    pixels = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    error = np.inf
    for fixed in [None, side] if backbone.local is not None else [side]:
        names = ["features"] if fixed else ["features", "cells"]
        try:
            axes = {"pixels": {0: "n"}} if fixed else wide
            tower = backbone.model.visual
            module = AveragedViT(tower) if not fixed and is_averaged(tower) else _Image(backbone, bool(fixed))
            _trace(module, (pixels,), folder / IMAGE, axes, names, weights, "")
            write_about(folder, **about, logit_scale=backbone.logit_scale, fixed=fixed)
            _seal(folder, weights)
            error = _difference(backbone, OnnxBackbone(folder, backbone.name))
        except Exception:  # positions that belong to one size end in all kinds of errors
            if fixed:
                raise
        if error < TOLERANCE:
            return
    raise WeightsError(f"{backbone.name} cannot be exported: its features differ by {error:.1e}")


def _write_model(backbone: TorchBackbone, folder: Path, source: Path | None) -> None:
    """Settings, weights and byte-pair table."""
    import open_clip

    if source is not None:
        wanted = [folder_.CONFIG, folder_.find_weights(source).name]
        table = source / "bpe.txt.gz"
        for name in wanted if source.resolve() != folder.resolve() else []:
            shutil.copyfile(source / name, folder / name)
    else:
        arch = backbone.name.partition(":")[0].replace("/", "-")
        config = {"model_cfg": open_clip.get_model_config(arch)}
        quick = any(type(layer).__name__ == "QuickGELU" for layer in backbone.model.modules())
        config["model_cfg"] |= {"quick_gelu": quick}
        config["preprocess_cfg"] = open_clip.get_model_preprocess_cfg(backbone.model)
        atomic.write(folder / folder_.CONFIG, (json.dumps(config, indent=1) + "\n").encode())
        state = {name: value.contiguous() for name, value in backbone.model.state_dict().items()}
        atomic.write(folder / folder_.WEIGHTS[0], to_bytes(state, {}))
        table = Path(str(files("open_clip"))) / "bpe_simple_vocab_16e6.txt.gz"
    if type(backbone.tokenizer) is not open_clip.SimpleTokenizer or not table.is_file():
        raise ConfigError(
            f"{backbone.name} cannot be exported: its tokenizer is not CLIP's byte-pair encoding"
        )
    if table.resolve() != (folder / table.name).resolve():
        shutil.copyfile(table, folder / "bpe.txt.gz")


def _trace(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    file: Path,
    axes: Mapping[str, Any],
    outputs: list[str],
    weights: Path,
    root: str,
) -> None:
    """Write a graph whose initializers are places in the file of weights.

    Args:
        root: what the names of the text tower's weights begin with in that file.
    """
    import onnx

    how: dict[str, Any] = {"opset_version": OPSET, "dynamo": False, "do_constant_folding": False}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter is deprecated, and what it warns of is compared
        mode = torch.onnx.TrainingMode.PRESERVE  # norms stay apart, under the names of their weights
        how |= {"input_names": list(axes), "output_names": outputs, "dynamic_axes": dict(axes)}
        torch.onnx.export(module.eval(), inputs, str(file), training=mode, **how)
    model = onnx.load(str(file))
    _pad_in_convolutions(model.graph)
    _drop_unused(model.graph)
    with weights.open("rb") as opened:
        start = 8 + (size := int.from_bytes(opened.read(8), "little"))
        header = json.loads(opened.read(size))
    casts = []
    for tensor in model.graph.initializer:
        said = header.get(tensor.name.replace("root.", root, 1))
        if said is None:
            continue  # a constant of the graph
        begin, end = said["data_offsets"]
        kind, own = KINDS[said["dtype"]], tensor.name
        if kind != tensor.data_type:
            own = f"{tensor.name} as kept"
            casts.append(onnx.helper.make_node("Cast", [own], [tensor.name], to=tensor.data_type))
        place = {"location": weights.name, "offset": start + begin, "length": end - begin}
        external = onnx.TensorProto.EXTERNAL
        tensor.CopyFrom(
            onnx.TensorProto(name=own, data_type=kind, dims=said["shape"], data_location=external)
        )
        tensor.external_data.extend(
            onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in place.items()
        )
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for node in model.graph.node:
        node.ClearField("doc_string")
    atomic.write(file, model.SerializeToString(deterministic=True))


def _pad_in_convolutions(graph: Any) -> None:
    """Let convolutions pad themselves where timm's "same" padding stands before them: a walk through memory less."""
    import onnx

    made = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        before = made.get(node.input[0]) if node.op_type == "Conv" else None
        if before is not None and before.op_type == "Pad":
            node.input[0] = before.input[0]
            kept = [own for own in node.attribute if own.name != "pads"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("auto_pad", "SAME_UPPER")])


def _drop_unused(graph: Any) -> None:
    """Remove what no output depends on."""
    needed, kept = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    tensors = [tensor for tensor in graph.initializer if tensor.name in needed]
    for held, some in ((graph.node, kept[::-1]), (graph.initializer, tensors)):
        del held[:]
        held.extend(some)


def _seal(folder: Path, weights: Path) -> None:
    """Write the checksums of all files, of those there were before too."""
    sums = folder / folder_.SUMS
    before = json.loads(sums.read_bytes())["files"] if sums.is_file() else {}
    names = {*before, folder_.CONFIG, weights.name, "bpe.txt.gz", ABOUT, IMAGE, TEXT}
    said = checksums.sealed({"files": {name: checksums.of_file(folder / name) for name in sorted(names)}})
    atomic.write(sums, (json.dumps(said, indent=1) + "\n").encode())


def _difference(backbone: TorchBackbone, exported: OnnxBackbone) -> float:
    """How far the exported features are from the model's, relative to the largest number."""
    side, numbers = backbone.preprocess.size, np.random.default_rng(0)
    texts = ["dog", "a photo of a traffic light.", "two people on a bench"]
    pairs = [(backbone.encode_texts(texts), exported.encode_texts(texts))]
    sizes = [side] if exported.fixed else [side, 2 * side]
    for size in sizes:
        pixels = numbers.standard_normal((2, 3, size, size)).astype(np.float32)
        if size == side:
            pairs.append((backbone.encode_images(pixels), exported.encode_images(pixels)))
        if exported.local is not None and backbone.local is not None:
            with torch.no_grad():
                pairs.append((backbone.local(torch.from_numpy(pixels)), exported.local(pixels)))
    found = [(want.cpu().numpy(), own) for want, own in pairs]
    if any(want.shape != own.shape for want, own in found):
        return np.inf
    return max(float(np.abs(want - own).max() / np.abs(want).max()) for want, own in found)
