"""MaPLe: a ViT backbone whose towers share one context, with additional prompts in deeper blocks."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.labels import LabelSet
from mltta.model.backbone import Backbone
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from mltta.model.label_encoder import TextTower
from mltta.model.learned_prompts import AnyPrompts, CoOp, MaPLe, load_prompts
from mltta.model.passes import ImageTower
from mltta.model.prompts import Prompts, build_prompts, split_template
from mltta.model.torch_backbone import TorchBackbone
from mltta.model.vit import class_feature, is_plain, patch_tokens

# Number of views whose activations are kept for a backward pass through the image tower.
KEPT_VIEWS = 64


class MaPLeBackbone(TorchBackbone):
    """A backbone with MaPLe's prompts in everything it encodes: images, labels and plain sentences.

    Text: the context replaces the template's first words ("a photo"), the words after them stay ("of a"). Before each
    deeper block its prompts overwrite the same positions, in sentences too. Image: the context passes through a linear
    layer and is appended after the patches; deeper blocks overwrite it there. All prompts use the tower's own
    precision, while the released code rounds prompt tokens to half precision.
    """

    prompts: MaPLe
    reads_context = True

    def __init__(self, base: Backbone, prompts: MaPLe):
        self.__dict__.update(base.__dict__)  # the weights are shared
        for own in ("text_fingerprint", "image_fingerprint", "local"):
            self.__dict__.pop(own, None)
        self._base, self.prompts = base, prompts
        self.name = f"{base.name} with MaPLe prompts {prompts.digest[:8]}"
        self._check(base)
        held = {name: value.to(self.device) for name, value in prompts.tensors.items()}
        self.context = held["ctx"]
        self._project = (held["proj.weight"], held["proj.bias"])
        self.tower = TextTower(self.model)
        self.tower.deep = [held[f"compound_prompts_text.{i}"] for i in range(prompts.deeper)]
        layers = "compound_prompt_projections"
        self._deep_image = [
            F.linear(text, held[f"{layers}.{i}.weight"], held[f"{layers}.{i}.bias"])  # (M, W')
            for i, text in enumerate(self.tower.deep)
        ]
        self.image_tower = self._image_tower()
        self._local_towers, self._vocabularies = {}, {}

    def _check(self, base: Backbone) -> None:
        visual, source = self.model.visual, self.prompts.source
        if not is_plain(visual):
            raise ConfigError(
                f"{source} contains MaPLe prompts, which need a ViT image tower with a class token, but that of "
                f"{base.name} is a {type(visual).__name__}; use the model they were learned for, such as ViT-B/16"
            )
        if not base.tower.causal:
            needs = "which need a causal text tower"
            raise ConfigError(f"{source} contains MaPLe prompts, {needs}; {base.name} has none")
        wide, own = visual.class_embedding.shape[0], self.prompts.tensors["proj.weight"].shape[0]
        if own != wide:
            raise ConfigError(
                f"{source} was learned for another model: its image prompts have width {own}, but the image tower of "
                f"{base.name} has width {wide}"
            )
        blocks = min(len(base.tower.blocks), len(visual.transformer.resblocks))
        if (own := self.prompts.deeper + 1) > blocks:
            raise ConfigError(f"{source} has prompts for {own} blocks, but {base.name} has {blocks}")

    @cached_property
    def text_fingerprint(self) -> str:
        return self._mix(self._base.text_fingerprint)

    @cached_property
    def image_fingerprint(self) -> str:
        return self._mix(self._base.image_fingerprint)

    def _mix(self, weights: str) -> str:
        return hashlib.blake2b(f"{weights} {self.prompts.digest}".encode(), digest_size=16).hexdigest()

    def _layout(self, labels: LabelSet, template: str, n_context: int | None = None) -> Prompts:
        before, after = split_template(template)
        tokens = len(self.context)
        texts = [" ".join([*before.split()[tokens:], text]) for text in labels.texts]
        return build_prompts(self.tokenizer, texts, "{}" + after, self.context_length, tokens)

    def _image_tower(self) -> ImageTower:
        def forward(views: Tensor) -> Tensor:
            return self.image_features(views, self.context.expand(len(views), -1, -1))

        size = self.preprocess.size
        return self.acceleration.image_tower(forward, self.device, self.image_dtype, size)

    def image_features(self, pixels: Tensor, contexts: Tensor) -> Tensor:
        """Unnormalized features (N, D) of images (N, 3, S, S) with contexts (N, M, W); differentiable."""
        visual: Any = self.model.visual
        x, _ = patch_tokens(visual, pixels)
        prompt = F.linear(contexts, *self._project).to(x.dtype)
        x = visual.ln_pre(torch.cat([x, prompt], dim=1))
        for i, block in enumerate(visual.transformer.resblocks):
            if 0 < i <= len(self._deep_image):
                deep = self._deep_image[i - 1].to(x.dtype).expand(len(x), -1, -1)
                x = torch.cat([x[:, : -deep.shape[1]], deep], dim=1)
            x = block(x)
        return class_feature(visual, x)

    def views(self, encoded: Encoded, specs: Sequence[AnySpec]) -> Views:
        return PromptedViews(self, encoded, specs)


def with_prompts(backbone: Backbone, prompts: AnyPrompts | str | Path) -> Backbone:
    """A backbone that uses learned prompts; CoOp's only change the initial context of labels."""
    if not backbone.any_method:
        raise ConfigError("learned prompts do not run on ONNX Runtime: --engine torch")
    learned = prompts if isinstance(prompts, (CoOp, MaPLe)) else load_prompts(prompts)
    if (own := backbone.prompts) is not None:
        raise ConfigError(f"{backbone.name} already uses {own.title} prompts: pass it without them")
    learned.check(backbone)
    if isinstance(learned, MaPLe):
        return MaPLeBackbone(backbone, learned)
    other = copy.copy(backbone)
    other.prompts = learned
    other._vocabularies = {}
    return other


class PromptedViews(Views):
    """Views of B images as a function of each image's context.

    ``views.features`` are those of the initial context, as encoded. For any other context the views are rendered
    again; the backward pass runs the tower only for views with a gradient.
    """

    read_context = True

    def __init__(
        self,
        backbone: MaPLeBackbone,
        encoded: Encoded,
        specs: Sequence[AnySpec],
        chosen: Tensor | None = None,
    ):
        """Args:
        specs: the specs of the views, in order.
        chosen: (B, n) indices of some of them.
        """
        if any(isinstance(spec, LocalSpec) for spec in specs):
            raise ConfigError("MaPLe's image tower can be tuned on crops only, not on local views")
        self._backbone, self._encoded = backbone, encoded
        self._specs = [spec for spec in specs if not isinstance(spec, LocalSpec)]
        every = torch.arange(sum(spec.count for spec in self._specs), device=backbone.device)
        self._chosen = every.expand(len(encoded), -1) if chosen is None else chosen
        self._rendered: dict[tuple[int, int], Tensor] = {}

    @property
    def features(self) -> Tensor:
        every = torch.cat([self._encoded.features(spec) for spec in self._specs], dim=1)
        return every.take_along_dim(self._chosen[..., None], dim=1)

    def take(self, chosen: Tensor) -> PromptedViews:
        own = self._chosen.gather(1, chosen)
        return PromptedViews(self._backbone, self._encoded, self._specs, own)

    def clean(self, contexts: Tensor) -> Tensor:
        return self.take(torch.zeros(len(contexts), 1, dtype=torch.long, device=contexts.device))(contexts)

    @torch.no_grad()
    def __call__(self, contexts: Tensor) -> Tensor:
        images, n = self._chosen.shape
        image = torch.arange(images, device=contexts.device).repeat_interleave(n)
        parts = [self._features(contexts, *part) for part in self._parts(image, self._chosen.flatten())]
        return torch.cat(parts).view(images, n, -1)

    def pull_back(self, contexts: Tensor, gradients: Tensor) -> Tensor:
        leaf = contexts.detach().requires_grad_()
        image, row = gradients.flatten(2).any(dim=-1).nonzero(as_tuple=True)
        total, start = torch.zeros_like(leaf), 0
        for part in self._parts(image, self._chosen[image, row]):
            own = slice(start, start + len(part[0]))
            with torch.enable_grad():
                features = self._features(leaf, *part)
            total += torch.autograd.grad(features, leaf, gradients[image[own], row[own]])[0]
            start = own.stop
        return total

    def _parts(self, image: Tensor, view: Tensor) -> list[tuple[Tensor, Tensor]]:
        size = min(self._backbone.image_tower.chunk, KEPT_VIEWS)
        return [(image[i : i + size], view[i : i + size]) for i in range(0, len(image), size)]

    def _features(self, contexts: Tensor, image: Tensor, view: Tensor) -> Tensor:
        backbone = self._backbone
        pixels = torch.stack([self._pixels(*at) for at in zip(image.tolist(), view.tolist(), strict=True)])
        pixels = pixels.to(backbone.device, backbone.image_dtype)
        found = backbone.image_features(pixels.contiguous(memory_format=torch.channels_last), contexts[image])
        return F.normalize(found.float(), dim=-1)

    def _pixels(self, image: int, view: int) -> Tensor:
        """One view (3, S, S), rendered on first use."""
        if (image, view) not in self._rendered:
            spec, own = [(spec, i) for spec in self._specs for i in range(spec.count)][view]
            pixels = self._encoded[image].pixels(spec, self._backbone.preprocess, np.array([[own]]))
            self._rendered[image, view] = torch.from_numpy(pixels[0, 0])
        return self._rendered[image, view]
