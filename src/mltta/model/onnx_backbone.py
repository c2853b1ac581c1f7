"""A model folder on ONNX Runtime: any CPU, no PyTorch, methods that need no gradient."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltta.arrays import Array, normalize
from mltta.errors import ConfigError, WeightsError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.images.views import Preprocess
from mltta.labels import LabelSet
from mltta.model import model_folder as folder_
from mltta.model.acceleration import Acceleration
from mltta.model.backbone import Backbone
from mltta.model.cpu_passes import CPU_CHUNK
from mltta.model.onnx_engine import OnnxEngine
from mltta.model.tokenizer import BytePairTokenizer
from mltta.model.windows import look_locally
from mltta.storage.reading import SETTINGS, parse_json, read_bytes

if TYPE_CHECKING:
    from mltta.model.label_encoder import LabelEncoder

FORMAT = "mltta-onnx-1"
#: what `mltta models export` writes beside a model's settings, weights and byte-pair table
ABOUT, IMAGE, TEXT, INT8 = "onnx.json", "image.onnx", "text.onnx", "image.int8.onnx"


class Cpu(NamedTuple):
    """The only device."""

    type: str = "cpu"

    def __str__(self) -> str:
        return self.type


class FixedLabels:
    """Unit features (C, D) of labels, with no context that could be tuned."""

    tunable = False

    def __init__(self, features: Array):
        self.features = features

    def __len__(self) -> int:
        return len(self.features)


class OnnxTower:
    """Unit features of views."""

    def __init__(self, forward: Callable[[Array], Array]):
        """Args:
        forward: features (N, D), or (N, L, D), not of unit length, of views (N, 3, S, S).
        """
        self._forward = forward

    def __call__(self, views: Array) -> Array:
        """Unit float32 features (N, D), or (N, L, D)."""
        return np.concatenate(
            [self.one_pass(views[i : i + CPU_CHUNK]) for i in range(0, len(views), CPU_CHUNK)]
        )

    def one_pass(self, views: Array) -> Array:
        """Unit float32 features of views, all in one pass."""
        return normalize(self._forward(views))

    def compile(self, views: int | None = None) -> None:
        """ONNX Runtime compiles nothing."""


class OnnxBackbone(Backbone):
    """A frozen model whose towers are ONNX graphs; their weights are those of the folder's safetensors file."""

    any_method = False
    device = Cpu()
    acceleration = Acceleration()
    image_tower: OnnxTower

    def __init__(self, folder: Path, name: str, dtype: str = "float32"):
        super().__init__()
        self.dtype, self._graph = dtype, folder / (INT8 if dtype == "int8" else IMAGE)
        if not self._graph.is_file():
            raise WeightsError(
                f"{folder} has no int8 graph: run `mltta models export` with --calibrate PHOTOS"
            )
        folder_.check_sums(folder)
        config = folder_.read_config(folder / folder_.CONFIG)
        about = parse_json(
            read_bytes(folder / ABOUT, SETTINGS, WeightsError), folder / ABOUT, WeightsError, ""
        )
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise WeightsError(f"{folder / ABOUT} is of another version: run `mltta models export` again")
        self.name, self.folder = name, folder
        self._about: dict[str, Any] = about
        self.logit_scale = float(about["logit_scale"])
        #: the input side in pixels, if the image tower takes no other
        self.fixed: int | None = about["fixed"]
        self.preprocess = Preprocess.from_open_clip(config.preprocess)
        self.context_length = int(config.model["text_cfg"].get("context_length", 77))
        self.tokenizer = BytePairTokenizer(folder / "bpe.txt.gz", self.context_length)
        self.image_tower = OnnxTower(partial(self._see, "features"))
        self.engine = OnnxEngine(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without the open graphs, which another process opens itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_image", "_text")}

    @property
    def arithmetic(self) -> str:
        return f"{self.dtype}, ONNX Runtime"

    @property
    def text_fingerprint(self) -> str:
        return str(self._about["text"])

    @property
    def image_fingerprint(self) -> str:
        return str(self._about["image"])

    @cached_property
    def _image(self) -> Any:
        return open_graph(self._graph)

    @cached_property
    def _text(self) -> Any:
        return open_graph(self.folder / TEXT)

    def _see(self, output: str, pixels: Array) -> Array:
        return self._image.run([output], {"pixels": pixels})[0]

    @property
    def local(self) -> Callable[[Array], Array] | None:
        return None if self.fixed else partial(self._see, "cells")

    def tower_of(self, spec: AnySpec) -> OnnxTower:
        _ = self._image  # opened once, before threads ask for it
        if not isinstance(spec, LocalSpec):
            return self.image_tower
        encode = partial(self._see, "features")
        return OnnxTower(partial(look_locally, spec, self.local, encode, self.preprocess.size))

    def asarray(self, values: Array) -> NDArray[Any]:
        return np.asarray(values)

    def encode_texts(self, texts: Sequence[str], batch_size: int = 256) -> NDArray[np.float32]:
        if not texts:
            raise ConfigError("no texts to encode")
        tokens = self.tokenizer(list(texts), context_length=self.context_length)
        end = tokens.argmax(axis=-1)  # the end-of-text token has the highest id
        order, text = np.argsort(end, kind="stable"), self._text

        def some(rows: NDArray[np.int64]) -> Array:
            length = int(end[rows].max()) + 1  # what is behind the longest, a causal tower does not see
            return text.run(["features"], {"tokens": tokens[rows, :length], "end": end[rows]})[0]

        parts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        found = np.concatenate(list(self.engine.threads.map(some, parts)))
        return found[np.argsort(order)]

    def _under(self, labels: LabelSet, template: str, context: Array | None = None) -> LabelEncoder:
        if context is not None:
            raise ConfigError("context vectors need PyTorch: --engine torch")
        return self._fixed(labels, template, self.encode_texts(self._layout(labels, template).texts))

    def _fixed(self, labels: LabelSet, template: str, features: Array) -> LabelEncoder:
        return FixedLabels(features)  # type: ignore[return-value]


def open_graph(file: Path) -> Any:
    """A session that works on the thread that asks; several may ask at once."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # one thread, so that a score does not depend on the number of cores
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has a class for each kind of error, all of its own
        raise WeightsError(f"{file} cannot be opened: {str(error).splitlines()[0]}") from error


def is_exported(folder: Path) -> bool:
    """Whether a model folder has graphs for ONNX Runtime."""
    return all((folder / name).is_file() for name in (ABOUT, IMAGE, TEXT))


def write_about(folder: Path, **about: Any) -> None:
    """What the graphs do not say of themselves."""
    (folder / ABOUT).write_text(json.dumps({"format": FORMAT, **about}, indent=1) + "\n", encoding="utf-8")
