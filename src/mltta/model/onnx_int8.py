"""Quantizes an exported image tower: int8 convolutions and matrix products, with ranges measured on photos."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mltta.errors import ConfigError
from mltta.images.decode import load_image
from mltta.images.specs import LocalSpec
from mltta.images.views import Preprocess, render_local
from mltta.model.onnx_backbone import IMAGE, INT8
from mltta.storage import atomic

#: input sizes whose ranges are measured, in units of the tower's own
SIDES = (1.0, 2.0)
#: the first convolutions stay in float32: int8 saves no time there and costs the most accuracy
FLOAT = 2


def quantize(folder: Path, photos: Sequence[Path], preprocess: Preprocess, fixed: bool) -> None:
    """Write the int8 graph of a model folder, which reads the same file of weights as the float32 one.

    Args:
        photos: measure the ranges of activations; about 30 are enough.
        fixed: whether the tower takes inputs of its own size only.
    """
    import onnx
    from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    if not photos:
        raise ConfigError("int8 needs photos to measure the ranges of activations")

    class Photos(CalibrationDataReader):  # type: ignore[misc]
        inputs = _inputs(photos, preprocess, SIDES[:1] if fixed else SIDES)

        def get_next(self) -> Any:
            return next(self.inputs, None)

    with tempfile.TemporaryDirectory() as place:
        plain, small = f"{place}/plain.onnx", f"{place}/int8.onnx"
        options = SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC  # norms into convolutions
        options.optimized_model_filepath = plain
        InferenceSession(folder / IMAGE, options, providers=["CPUExecutionProvider"])
        nodes = onnx.load(plain, load_external_data=False).graph.node
        first = [node.name for node in nodes if node.op_type == "Conv"][:FLOAT]
        logging.disable(logging.WARNING)  # it advises to do what was done above
        quantize_static(
            plain,
            small,
            Photos(),
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["Conv", "Clip", "MatMul"],
            nodes_to_exclude=first,
            extra_options={"MatMulConstBOnly": True},
        )
        logging.disable(logging.NOTSET)
        model, source = onnx.load(small), onnx.load(folder / IMAGE, load_external_data=False)
        _share_weights(model.graph, source.graph, onnx.load(plain).graph, folder)
    atomic.write(folder / INT8, model.SerializeToString(deterministic=True))


def _inputs(
    photos: Sequence[Path], preprocess: Preprocess, sides: Sequence[float]
) -> Iterator[dict[str, Any]]:
    for photo in photos:
        image = load_image(photo, working=True)
        for side in sides:
            size = round(side * preprocess.size)
            yield {"pixels": render_local(image, LocalSpec(size, size, size), preprocess)}


def _share_weights(graph: Any, source: Any, plain: Any, folder: Path) -> None:
    """Replace weights by their place in the model's own file; opening the graph scales and rounds them.

    Args:
        source: the float32 graph, whose weights are places in that file.
        plain: the same with norms multiplied into the weights, under the names of the graph.
    """
    from onnx import TensorProto, helper
    from onnx.numpy_helper import from_array, to_array

    kept = {one.name.removesuffix(" as kept"): one for one in source.initializer if one.external_data}
    folded, nodes, tensors = {one.name: one for one in plain.initializer}, [], []
    for tensor in graph.initializer:
        name, base = tensor.name, tensor.name.removesuffix("_quantized")
        place = kept.get(re.sub("^ConvBnFusion_W_", "", base))
        if place is None or base not in folded or list(place.dims) != list(tensor.dims):
            tensors.append(tensor)
            continue
        own, wanted = (to_array(one, str(folder)).astype(np.float32) for one in (place, folded[base]))
        across = tuple(range(1, own.ndim))
        gain = (own * wanted).sum(across, keepdims=True) / (own * own).sum(across, keepdims=True).clip(1e-30)
        assert np.allclose(own * gain, wanted, atol=1e-5 * np.abs(wanted).max()), name
        place.name = f"{name} as kept"
        tensors += [place, from_array(gain, f"{name} gain")]
        last = f"{name} in float32" if name != base else name
        nodes.append(helper.make_node("Cast", [place.name], [f"{name} as read"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name} as read", f"{name} gain"], [last]))
        if name != base:
            rounded = [last, f"{base}_scale", f"{base}_zero_point"]
            nodes.append(helper.make_node("QuantizeLinear", rounded, [name], axis=0))
    nodes += graph.node
    for held, some in ((graph.node, nodes), (graph.initializer, tensors)):
        copied = list(some)
        del held[:]
        held.extend(copied)
