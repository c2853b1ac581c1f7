"""Wrapper for open_clip models: images and texts in, unit features out."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.arrays import Array
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.images.views import Preprocess
from mltta.labels import LabelSet
from mltta.model import vocabulary as vocabulary_
from mltta.model import weights as weights_
from mltta.model.acceleration import Acceleration, Renderer
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from mltta.model.label_encoder import LabelEncoder, Prompts, TextTower, build_prompts
from mltta.model.learned_prompts import AnyPrompts
from mltta.model.local import Local, local_path, look_locally
from mltta.model.passes import ImageTower, each
from mltta.model.prompts import (
    DEFAULT_TEMPLATE,
    DescriptionSource,
    TemplateSource,
    check_lengths,
    list_templates,
    load_descriptions,
)
from mltta.model.torch_engine import TorchEngine
from mltta.model.vocabulary import Vocabulary
from mltta.storage.folders import embedded_text_tower

log = logging.getLogger("mltta")


class Backbone:
    """A frozen open_clip model: ``encode_images``, ``encode_texts``, ``encode_labels``."""

    #: its learned prompts, see ``with_prompts``
    prompts: AnyPrompts | None = None
    #: whether image features depend on the context too
    reads_context = False

    def __init__(
        self,
        loaded: weights_.Loaded,
        device: torch.device,
        image_dtype: torch.dtype = torch.float32,
        acceleration: Acceleration | None = None,
    ):
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
        self._vocabularies: dict[tuple[str, ...], Vocabulary] = {}

    @property
    def engine(self) -> TorchEngine:
        """Encodes photos and runs methods on the model's device."""
        return TorchEngine(self)

    @cached_property
    def text_fingerprint(self) -> str:
        """Hash of everything except the image tower: what a caption embedding depends on."""
        layers = [layer for name, layer in self.model.named_modules() if not name.startswith("visual")]
        quick = any(type(layer).__name__ == "QuickGELU" for layer in layers)
        own = {key: v for key, v in self.model.state_dict().items() if not key.startswith("visual.")}
        # the same weights give other features with another activation
        return _digest("QuickGELU" if quick else "", own)

    @property
    def is_embedded(self) -> bool:
        """Whether its text tower is the embedded model's, whatever its name: then the built-in captions fit."""
        return self.text_fingerprint == embedded_text_tower()

    @cached_property
    def image_fingerprint(self) -> str:
        """Hash of the image tower's weights and layers: what view features depend on."""
        visual = self.model.visual
        return _digest(repr(visual), visual.state_dict())

    @cached_property
    def renderer(self) -> Renderer | None:
        """Renders views on the image tower's device and in its precision; None if views are rendered on the CPU."""
        return self.acceleration.renderer(self.preprocess, self.device, self.image_dtype)

    @property
    def arithmetic(self) -> str:
        """The precision of image encoding, as text."""
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

    def encode_labels(
        self,
        labels: LabelSet,
        template: TemplateSource = DEFAULT_TEMPLATE,
        context: Tensor | None = None,
        descriptions: DescriptionSource | None = None,
    ) -> LabelEncoder:
        """The labels' text features as a function of the context in front of them.

        With several templates, or templates and descriptions, a label's feature is the normalized mean of the unit
        features of all its prompts. It is fixed, because there is no single context to tune.

        Args:
            labels: the label set; its ``texts`` are used in the prompt.
            template: a text with one {}, whose words in front of the label initialize the context; or several, or the
                name of a set, "openai" or "simple".
            context: learned or random vectors (M, W) that replace those words, or (C, M, W), one context per label
                (default: those of the learned prompts, if any).
            descriptions: sentences by label, used as prompts without a template, or a JSON file of them.
        """
        templates = list_templates(template)
        sentences = None if descriptions is None else load_descriptions(descriptions, labels)
        if context is None and self.prompts is not None:
            context = self.prompts.for_labels(labels)
        if len(templates) == 1 and not sentences:
            return self._under(labels, templates[0], context)
        if context is not None:
            raise ConfigError(
                "context vectors replace the words of one template, so several templates have no single context: "
                "give one template and no descriptions"
            )
        # vocabulary features are normalized, but sums with sentences need the original length
        total = self._ensemble(labels, templates, look_up=not sentences)  # (C, D)
        prompts = self._layout(labels, templates[0])
        if sentences:
            check_lengths(self.tokenizer, sentences, self.context_length - prompts.start - 1)
            features = self.encode_texts([text for texts in sentences.values() for text in texts])
            owners = torch.tensor([labels.index(name) for name, texts in sentences.items() for _ in texts])
            total = total.index_add(0, owners.to(self.device), features.to(self.device))
        return LabelEncoder(self.tower, prompts, None, F.normalize(total, dim=-1))

    def _ensemble(self, labels: LabelSet, templates: tuple[str, ...], look_up: bool) -> Tensor:
        """Sums (C, D) of the labels' unit features for several templates; words of the vocabulary are looked up."""
        kept = self._kept_vocabulary(templates) if look_up else None
        rows = [None if kept is None else kept.rows.get(text) for text in labels.texts]
        new = [i for i, row in enumerate(rows) if row is None]
        if kept is None or new:
            some = labels if kept is None else labels.pick(new)
            total = torch.zeros((), device=self.device)
            for one in templates:
                total = total + self._under(some, one).features  # (n, D)
            if kept is None:
                return total
        found: Tensor = len(templates) * kept.features[[row or 0 for row in rows]]
        if new:
            found[new] = total
        return found

    def vocabulary(self, template: TemplateSource) -> Vocabulary:
        """The words of all built-in lists and their features with these templates; computed once and cached."""
        templates = list_templates(template)
        kept = self._kept_vocabulary(templates)
        if kept is None:
            words = vocabulary_.words()
            log.info("encoding %d vocabulary words for %s (cached afterwards)", len(words), self.name)
            labels = LabelSet(tuple(words), tuple(words), ((),) * len(words), "everyday words")
            kept = Vocabulary(words, self.encode_labels(labels, templates).features)
            name = vocabulary_.identity(self._reads, templates, words)
            vocabulary_.save_to(vocabulary_.kept_file(name), name, kept)
            self._vocabularies[templates] = kept
        return kept

    def _kept_vocabulary(self, templates: tuple[str, ...]) -> Vocabulary | None:
        """The vocabulary if it is in memory, included with the model or cached on this machine."""
        if templates not in self._vocabularies:
            kept = vocabulary_.find(vocabulary_.identity(self._reads, templates, vocabulary_.words()))
            if kept is None:
                return None
            kept.features = self.asarray(kept.features)
            self._vocabularies[templates] = kept
        return self._vocabularies[templates]

    @property
    def _reads(self) -> str:
        """Key of text features: the tower, and its learned prompts."""
        return self.text_fingerprint + (f" {self.prompts.digest}" if self.prompts is not None else "")

    def _under(self, labels: LabelSet, template: str, context: Tensor | None = None) -> LabelEncoder:
        """Labels with one template; their context can be tuned if the tower allows it."""
        prompts = self._layout(labels, template, None if context is None else context.shape[-2])
        if self.tower.tunable:
            return self.acceleration.label_encoder(self.tower, prompts, context)
        if context is not None:
            raise ConfigError(f"{self.name}: this text tower does not accept context vectors")
        return LabelEncoder(self.tower, prompts, None, self.encode_texts(prompts.texts).to(self.device))

    def _layout(self, labels: LabelSet, template: str, n_context: int | None = None) -> Prompts:
        return build_prompts(self.tokenizer, labels.texts, template, self.context_length, n_context)

    def views(self, encoded: Encoded, specs: Sequence[AnySpec]) -> Views:
        """The encoded views, spec by spec; a tower that depends on the context makes them a function of it."""
        return Views.of(encoded, specs)


def _digest(said: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(said.encode(), digest_size=16)
    for key, value in sorted(tensors.items()):
        digest.update(key.encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
