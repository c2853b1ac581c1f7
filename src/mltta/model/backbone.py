"""Wrapper for CLIP-style models: images and texts in, unit features out. What all engines share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace

from mltta.arrays import Array, add_rows, like, normalize
from mltta.errors import ConfigError, needs_torch
from mltta.images.specs import AnySpec
from mltta.images.views import Preprocess
from mltta.labels import LabelSet
from mltta.model import vocabulary as vocabulary_
from mltta.model.prompts import (
    DEFAULT_TEMPLATE,
    DescriptionSource,
    Prompts,
    TemplateSource,
    build_prompts,
    check_lengths,
    list_templates,
    load_descriptions,
)
from mltta.model.vocabulary import Vocabulary
from mltta.storage.folders import embedded_text_tower

if TYPE_CHECKING:
    from mltta.model.context_views import Views
    from mltta.model.encoded import Encoded
    from mltta.model.label_encoder import LabelEncoder
    from mltta.model.learned_prompts import AnyPrompts

log = logging.getLogger("mltta")


class Backbone(ABC):
    """A frozen CLIP-style model: ``encode_images``, ``encode_texts``, ``encode_labels``.

    `load_backbone` chooses the engine that it runs on: PyTorch (`TorchBackbone`) or ONNX Runtime (`OnnxBackbone`).
    """

    #: its learned prompts, see ``with_prompts``
    prompts: AnyPrompts | None = None
    #: whether image features depend on the context too
    reads_context = False
    name: str
    #: whether every method runs on its engine, or only those that need no gradient
    any_method = True
    #: whether its weights are trained ones
    trained = True
    device: Any
    #: a session's interface to the device: `TorchEngine` or `OnnxEngine`
    engine: Any
    tokenizer: Any
    context_length: int
    preprocess: Preprocess
    #: the model's own temperature, which is not always 100
    logit_scale: float
    #: reads the local features of the image tower, if it has any
    local: Any
    #: renders views on the image tower's device; None if views are rendered on the CPU
    renderer: Any = None
    acceleration: Any
    image_tower: Any
    #: with PyTorch only: the model, its text tower, and the precision of its image tower
    model: Any
    tower: Any
    image_dtype: Any

    def __init__(self) -> None:
        self._vocabularies: dict[tuple[str, ...], Vocabulary] = {}

    @property
    @abstractmethod
    def text_fingerprint(self) -> str:
        """Hash of everything except the image tower: what a caption embedding depends on."""

    @property
    @abstractmethod
    def image_fingerprint(self) -> str:
        """Hash of the image tower's weights and layers: what view features depend on."""

    @property
    @abstractmethod
    def arithmetic(self) -> str:
        """The precision of image encoding, and the engine if it is not PyTorch, as text."""

    @property
    def is_embedded(self) -> bool:
        """Whether its text tower is the embedded model's, whatever its name: then the built-in captions fit."""
        return self.text_fingerprint == embedded_text_tower()

    @abstractmethod
    def tower_of(self, spec: AnySpec) -> Any:
        """The image tower for a spec: returns (N, D) for crops, (N, L, D) for local views."""

    def renderer_of(self, spec: AnySpec) -> Any:
        """The device renderer for a spec, if there is one."""
        return None

    @abstractmethod
    def asarray(self, values: Array) -> Array:
        """The values as an array on the features' device."""

    def encode_images(self, pixels: Array) -> Array:
        """Unit float32 features (N, D) of normalized images (N, 3, S, S)."""
        return self.image_tower(self.asarray(pixels))

    @abstractmethod
    def encode_texts(self, texts: Sequence[str], batch_size: int = 256) -> Array:
        """Unit float32 features (N, D) of sentences, on the CPU; padding is skipped if the tower is causal."""

    def encode_labels(
        self,
        labels: LabelSet,
        template: TemplateSource = DEFAULT_TEMPLATE,
        context: Array | None = None,
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
        if sentences:
            start = self._layout(labels, templates[0]).start
            check_lengths(self.tokenizer, sentences, self.context_length - start - 1)
            features = self.encode_texts([text for texts in sentences.values() for text in texts])
            owners = [labels.index(name) for name, texts in sentences.items() for _ in texts]
            total = add_rows(total, like(np.array(owners), total), self.asarray(features))
        return self._fixed(labels, templates[0], normalize(total))

    def _ensemble(self, labels: LabelSet, templates: tuple[str, ...], look_up: bool) -> Array:
        """Sums (C, D) of the labels' unit features for several templates; words of the vocabulary are looked up."""
        kept = self._kept_vocabulary(templates) if look_up else None
        rows = [None if kept is None else kept.rows.get(text) for text in labels.texts]
        new = [i for i, row in enumerate(rows) if row is None]
        total: Array = 0.0
        if kept is None or new:
            some = labels if kept is None else labels.pick(new)
            for one in templates:
                total = total + self._under(some, one).features  # (n, D)
            if kept is None:
                return total
        found: Array = len(templates) * kept.features[[row or 0 for row in rows]]
        if new:
            found[new] = total
        return found

    def encode_words(self, texts: Sequence[str], template: TemplateSource) -> Array:
        """Unit features (J, D) of words, with a template or the mean of several; known words are looked up.

        On a CPU each of the others is encoded by itself, so that its rounding does not depend on the rest.
        """
        templates, kept = list_templates(template), self.vocabulary(template)
        new = [text for text in dict.fromkeys(texts) if text not in kept.rows]
        sets = [[text] for text in new] if str(self.device) == "cpu" else [new] if new else []
        found = [kept.features, *(self._encode_together(own, templates) for own in sets)]
        row = kept.rows | {text: len(kept.rows) + i for i, text in enumerate(new)}
        return array_namespace(kept.features).concat(found)[[row[text] for text in texts]]

    def _encode_together(self, texts: Sequence[str], templates: tuple[str, ...]) -> Array:
        """Unit features (J, D) of words: one word in a single pass with all templates, several template by template."""
        names = tuple(f"{text} {i}" for i, text in enumerate(texts))  # must be unique, and are not encoded
        labels = LabelSet(names, tuple(texts), ((),) * len(texts), "words")
        if len(texts) > 1 or self.prompts is not None:
            return self.encode_labels(labels, templates).features
        self._layout(labels, max(templates, key=len))  # refuses a word that is too long
        rows = self.asarray(self.encode_texts([one.format(texts[0]) for one in templates]))
        return normalize(array_namespace(rows).mean(rows, axis=0, keepdims=True))

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

    def views(self, encoded: Encoded, specs: Sequence[AnySpec]) -> Views:
        """The encoded views as functions of a context, for methods that tune one."""
        raise needs_torch("tuning a prompt")

    @abstractmethod
    def _under(self, labels: LabelSet, template: str, context: Array | None = None) -> LabelEncoder:
        """Labels with one template; their context can be tuned if the tower allows it."""

    @abstractmethod
    def _fixed(self, labels: LabelSet, template: str, features: Array) -> LabelEncoder:
        """Labels with ready features (C, D), whose context cannot be tuned."""

    def _layout(self, labels: LabelSet, template: str, n_context: int | None = None) -> Prompts:
        return build_prompts(self.tokenizer, labels.texts, template, self.context_length, n_context)
