"""One wrapper over open_clip models: images and texts in, unit features out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta import weights as weights_
from mltta.allocation import keep_freed_memory
from mltta.errors import ConfigError
from mltta.labels import LabelSet
from mltta.prompts import DEFAULT_TEMPLATE, build_prompts
from mltta.text_tower import LabelEncoder, TextTower
from mltta.views import Preprocess

# Views a pass on the CPU: few enough for its caches, so 64 at once take five times as long.
CPU_CHUNK = 8


class Backbone:
    """A frozen open_clip model: ``encode_images``, ``encode_texts``, ``encode_labels``."""

    def __init__(
        self, loaded: weights_.Loaded, device: torch.device, image_dtype: torch.dtype = torch.float32
    ):
        if device.type == "cpu":
            keep_freed_memory()
        self.name = loaded.name
        self.trained = loaded.trained
        self.device = device
        self.image_dtype = image_dtype
        self.model: Any = loaded.model.eval().requires_grad_(False).to(device, torch.float32)
        self.tokenizer = loaded.tokenizer
        self.preprocess = Preprocess.from_open_clip(loaded.preprocess)
        self.tower = TextTower(self.model)
        #: the model's own temperature, never 100 by habit
        self.logit_scale = float(self.model.logit_scale.exp())
        self.model.visual.to(image_dtype, memory_format=torch.channels_last)

    @property
    def context_length(self) -> int:
        return int(getattr(self.tokenizer, "context_length", None) or 77)

    @cached_property
    def text_fingerprint(self) -> str:
        """Hash of everything but the image tower: what a caption embedding depends on."""
        digest = hashlib.blake2b(digest_size=16)
        for key, value in sorted(self.model.state_dict().items()):
            if not key.startswith("visual."):
                digest.update(key.encode())
                digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def image_fingerprint(self) -> str:
        """Hash of the image tower, its weights and its layers: what a view's feature depends on."""
        visual = self.model.visual
        digest = hashlib.blake2b(repr(visual).encode(), digest_size=16)
        for key, value in sorted(visual.state_dict().items()):
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @property
    def arithmetic(self) -> str:
        """The precision that images are encoded in, in words."""
        name = str(self.image_dtype).removeprefix("torch.")
        return f"{name}, TF32" if self.device.type == "cuda" and torch.backends.cudnn.allow_tf32 else name

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """Unit float32 features (N, D) of normalised images (N, 3, S, S)."""
        pixels = pixels.to(self.device, self.image_dtype).contiguous(memory_format=torch.channels_last)
        parts = torch.split(pixels, CPU_CHUNK) if self.device.type == "cpu" else (pixels,)
        features = torch.cat([self.model.encode_image(part) for part in parts])
        return F.normalize(features.float(), dim=-1)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str], batch_size: int = 256) -> Tensor:
        """Unit float32 features (N, D) of sentences, on the CPU; a causal tower skips all padding."""
        if not texts:
            raise ConfigError("no texts to encode")
        tokens = self.tokenizer(list(texts), context_length=self.context_length)
        if not (self.tower.tunable and self.tower.causal):
            parts = [
                self.model.encode_text(part.to(self.device), normalize=True).cpu()
                for part in tokens.split(batch_size)
            ]
            return torch.cat(parts).float()
        end = tokens.argmax(dim=-1)  # the end-of-text token has the highest id
        order = end.argsort(stable=True)
        features = []
        for part in order.split(batch_size):
            length = int(end[part].max()) + 1
            x = self.tower.embed(tokens[part, :length].to(self.device))
            features.append(self.tower.run(x, end[part].to(self.device)).cpu())
        return torch.cat(features)[order.argsort()]

    def encode_labels(
        self, labels: LabelSet, template: str = DEFAULT_TEMPLATE, context: Tensor | None = None
    ) -> LabelEncoder:
        """The labels' text features as a function of the context in front of them.

        Args:
            labels: the label set; its ``texts`` go into the prompt.
            template: text with one {}; its words in front of the label start the context.
            context: (M, W) learned or random vectors that replace those words.
        """
        n_context = None if context is None else context.shape[0]
        prompts = build_prompts(
            self.tokenizer,
            labels.texts,
            template=template,
            context_length=self.context_length,
            n_context=n_context,
        )
        if not self.tower.tunable:
            if context is not None:
                raise ConfigError(f"{self.name}: context vectors cannot be put into this text tower")
            return LabelEncoder(
                self.tower, prompts, None, features=self.encode_texts(prompts.texts).to(self.device)
            )
        return LabelEncoder(self.tower, prompts, context)


def load_backbone(
    model: str | None = None,
    weights: str | Path | None = None,
    *,
    device: str | torch.device = "auto",
    image_dtype: torch.dtype = torch.float32,
    quick_gelu: bool | None = None,
    allow_torchscript: bool = False,
    random_weights: bool = False,
) -> Backbone:
    """Load a frozen CLIP-style model by name, folder or file.

    Args:
        model: "RN50", "RN101", "ViT-B/32", "ViT-B/16", any open_clip "NAME" or "NAME:TAG", "hf-hub:ORG/REPO",
            or a folder with open_clip_config.json.
        weights: a pretrained tag, or a local file (safetensors, state_dict, OpenAI's .pt archive).
        device: "auto" takes a GPU where there is one.
        image_dtype: precision of the image tower; texts and scores stay in float32.
        quick_gelu: the activation a local file was trained with.
        allow_torchscript: open OpenAI's original archive, which is a program.
        random_weights: an untrained model, for benchmarks; `Tagger` refuses it.
    """
    loaded = weights_.load(
        model,
        weights,
        quick_gelu=quick_gelu,
        allow_torchscript=allow_torchscript,
        random_weights=random_weights,
    )
    return Backbone(loaded, pick_device(device), image_dtype)


def pick_device(device: str | torch.device) -> torch.device:
    """Resolve "auto", and say plainly when a device is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ConfigError(
            f"device {str(device)!r} is not available; here there is {', '.join(there)}"
        ) from error
    return chosen
