"""open_clip models on PyTorch: any device, any method."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mltta.arrays import Array
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.images.views import Preprocess
from mltta.labels import LabelSet
from mltta.model import weights as weights_
from mltta.model.acceleration import Acceleration, Renderer, choose
from mltta.model.backbone import Backbone
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from mltta.model.label_encoder import LabelEncoder, TextTower
from mltta.model.local import Local, local_path
from mltta.model.passes import ImageTower, each
from mltta.model.torch_engine import TorchEngine
from mltta.model.windows import look_locally

log = logging.getLogger("mltta")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchBackbone(Backbone):
    """A frozen open_clip model on PyTorch."""

    acceleration: Acceleration
    image_tower: ImageTower
    device: torch.device
    tower: TextTower

    def __init__(
        self,
        loaded: weights_.Loaded,
        device: torch.device,
        image_dtype: torch.dtype = torch.float32,
        acceleration: Acceleration | None = None,
    ):
        super().__init__()
        self.acceleration = acceleration or Acceleration()
        self.name, self.trained = loaded.name, loaded.trained
        self.device, self.image_dtype = device, image_dtype
        self.model: Any = loaded.model.eval().requires_grad_(False).to(device, torch.float32)
        self.tokenizer = loaded.tokenizer
        self.context_length = int(getattr(self.tokenizer, "context_length", None) or 77)
        self.preprocess = Preprocess.from_open_clip(loaded.preprocess)
        self.tower = TextTower(self.model)
        #: the model's own temperature, which is not always 100
        self.logit_scale = float(self.model.logit_scale.exp())
        self.model.visual.to(image_dtype, memory_format=torch.channels_last)
        _ = self.image_fingerprint  # hash the original weights before they are converted
        self.acceleration.start(self.model.visual)
        self.image_tower = self._image_tower()
        self._local_towers: dict[LocalSpec, ImageTower] = {}
        self._local_renderers: dict[int, Renderer | None] = {}

    @property
    def engine(self) -> TorchEngine:
        """Encodes photos and runs methods on the model's device."""
        return TorchEngine(self)

    @cached_property
    def text_fingerprint(self) -> str:
        layers = [layer for name, layer in self.model.named_modules() if not name.startswith("visual")]
        quick = any(type(layer).__name__ == "QuickGELU" for layer in layers)
        own = {key: v for key, v in self.model.state_dict().items() if not key.startswith("visual.")}
        # the same weights give other features with another activation
        return _digest("QuickGELU" if quick else "", own)

    @cached_property
    def image_fingerprint(self) -> str:
        visual = self.model.visual
        return _digest(repr(visual), visual.state_dict())

    @cached_property
    def renderer(self) -> Renderer | None:
        """Renders views on the image tower's device and in its precision; None if views are rendered on the CPU."""
        return self.acceleration.renderer(self.preprocess, self.device, self.image_dtype)

    @property
    def arithmetic(self) -> str:
        name = str(self.image_dtype).removeprefix("torch.")
        tf32 = self.device.type == "cuda" and name == "float32" and torch.backends.cudnn.allow_tf32
        return f"{name}, TF32 convolutions" if tf32 else name

    def _image_tower(self) -> ImageTower:
        forward, side = self.model.encode_image, self.preprocess.size
        return self.acceleration.image_tower(forward, self.device, self.image_dtype, side)

    @cached_property
    def local(self) -> Local | None:
        """Reads the local features of the image tower, if it has any; not available with prompts inside the tower."""
        return None if self.reads_context else local_path(self.model.visual)

    def tower_of(self, spec: AnySpec) -> ImageTower:
        """The image tower for a spec: returns (N, D) for crops, (N, L, D) for local views."""
        if not isinstance(spec, LocalSpec):
            return self.image_tower
        if spec not in self._local_towers:
            forward = partial(look_locally, spec, self.local, self.model.encode_image, self.preprocess.size)
            make = self.acceleration.image_tower
            self._local_towers[spec] = make(forward, self.device, self.image_dtype, spec.size)
        return self._local_towers[spec]

    def renderer_of(self, spec: AnySpec) -> Renderer | None:
        """The device renderer for a spec, if there is one."""
        if not isinstance(spec, LocalSpec):
            return self.renderer
        if spec.size not in self._local_renderers:
            at = self.preprocess.at(spec.size)
            self._local_renderers[spec.size] = self.acceleration.renderer(at, self.device, self.image_dtype)
        return self._local_renderers[spec.size]

    def asarray(self, values: Array) -> Tensor:
        """The values as a tensor on the features' device."""
        return torch.as_tensor(values, device=self.device)

    def encode_images(self, pixels: Array) -> Tensor:
        """Unit float32 features (N, D) of normalized images (N, 3, S, S)."""
        return self.image_tower(torch.as_tensor(pixels))

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str], batch_size: int = 256) -> Tensor:
        """Unit float32 features (N, D) of sentences, on the CPU; padding is skipped if the tower is causal."""
        if not texts:
            raise ConfigError("no texts to encode: give at least one")
        tokens = self.tokenizer(list(texts), context_length=self.context_length)
        causal = self.tower.tunable and self.tower.causal
        end = self.tower.end_of(tokens) if causal else tokens[:, 0]
        order = end.argsort(stable=True) if causal else torch.arange(len(tokens))

        @torch.no_grad()  # gradient mode is per thread
        def some(rows: Tensor) -> Tensor:
            if not causal:
                return self.model.encode_text(tokens[rows].to(self.device), normalize=True).cpu().float()  # type: ignore[no-any-return]
            x = self.tower.embed(tokens[rows, : int(end[rows].max()) + 1].to(self.device))
            return self.tower.run(x, end[rows].to(self.device)).cpu()

        return torch.cat(each(some, order.split(batch_size), self.device))[order.argsort()]

    def _under(self, labels: LabelSet, template: str, context: Tensor | None = None) -> LabelEncoder:
        """Labels with one template; their context can be tuned if the tower allows it."""
        prompts = self._layout(labels, template, None if context is None else context.shape[-2])
        if self.tower.tunable:
            return self.acceleration.label_encoder(self.tower, prompts, context)
        if context is not None:
            raise ConfigError(f"{self.name}: this text tower does not accept context vectors")
        return LabelEncoder(self.tower, prompts, None, self.encode_texts(prompts.texts).to(self.device))

    def _fixed(self, labels: LabelSet, template: str, features: Tensor) -> LabelEncoder:
        return LabelEncoder(self.tower, self._layout(labels, template), None, features)

    def views(self, encoded: Encoded, specs: Sequence[AnySpec]) -> Views:
        """The encoded views, spec by spec; a tower that depends on the context makes them a function of it."""
        return Views.of(encoded, specs)


def open_torch(
    model: str | None,
    weights: str | Path | None = None,
    *,
    device: str | torch.device = "auto",
    image_dtype: torch.dtype | str | None = None,
    accelerate: bool | str | None = None,
    **how: Any,
) -> TorchBackbone:
    """A model on a device, as `load_backbone` says."""
    loaded, chosen = weights_.load(model, weights, **how), pick_device(device)
    backbone = TorchBackbone(loaded, chosen, pick_dtype(image_dtype, chosen), choose(chosen, accelerate))
    gpu = chosen.type == "cuda"
    where = torch.cuda.get_device_name(chosen) if gpu else f"{torch.get_num_threads()} threads"
    log.debug("%s on %s (%s), images in %s", backbone.name, chosen, where, backbone.arithmetic)
    log.debug("%d views at a time through the image tower", backbone.image_tower.chunk)
    return backbone


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


def _digest(said: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(said.encode(), digest_size=16)
    for key, value in sorted(tensors.items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
