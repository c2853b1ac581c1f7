"""What is to be measured, and everything that a result depends on, in plain data."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mltta import __version__
from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.methods import create_method
from mltta.methods.base import Method
from mltta.methods.plugins import source_digest
from mltta.model.backbone import Backbone
from mltta.model.prompts import TemplateSource, list_templates
from mltta.session.cache import rendering


@dataclass(frozen=True)
class Recipe:
    """A method to measure: its name, its settings, and for an online one the order it sees the images in."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "paper"
    #: how a table calls it; no part of what is measured
    title: str = ""
    #: None: as the dataset lists them; a number: shuffled with that seed
    order: int | None = None

    @property
    def name(self) -> str:
        if self.title:
            return self.title
        said = [self.preset] * (self.preset != "paper") + [f"{k}={v}" for k, v in self.options.items()]
        return self.method + (f" ({', '.join(said)})" if said else "")

    @property
    def key(self) -> str:
        """The name, and the order if there is one: unlike any other recipe's of a run."""
        return self.name if self.order is None else f"{self.name}, order {self.order}"


@dataclass(frozen=True)
class Setting:
    """What all recipes of a run share."""

    dataset: Dataset
    backbone: Backbone
    captions: CaptionBase
    template: TemplateSource | None = None
    descriptions: Mapping[str, Sequence[str]] | None = None
    teacher: Backbone | str | None = None
    seed: int = 0

    def method(self, recipe: Recipe) -> Method:
        """A recipe's method."""
        return create_method(
            recipe.method,
            self.backbone,
            self.dataset.labels,
            template=self.template,
            descriptions=self.descriptions,
            captions=self.captions,
            teacher=self.teacher,
            preset=recipe.preset,
            **recipe.options,
        )

    def describe(self, recipe: Recipe, method: Method) -> dict[str, Any]:
        """All that a recipe's scores depend on; two runs that differ in any of it never share a result."""
        dataset, backbone = self.dataset, self.backbone
        config = json.loads(json.dumps(asdict(method.config)))
        usual = asdict(type(method.config)())
        teacher = method.problem.teacher
        judge = None if teacher is None else teacher.backbone
        source = source_digest(type(method))
        return {
            "method": method.name,
            **({} if source is None else {"source": source}),
            "config": config,
            "settings": {name: value for name, value in config.items() if value != usual[name]},
            **({"transductive": True} if method.transductive else {}),
            **({"reconstruction": True} if method.reconstruction else {}),
            "online": method.online,
            "order": recipe.order if method.online else None,
            "emits": method.emits,
            "merge": method.merging,
            "dataset": dataset.name,
            "dataset_digest": self._dataset_digest,
            "files": self._files_digest,
            "generated": _tree_digest(config["generated"]) if config.get("generated") else None,
            "labels": list(dataset.labels.names),
            "prompted_as": list(dataset.labels.texts),
            "synonyms": _digest(json.dumps(dataset.labels.synonyms).encode()),
            "template": list(list_templates(self.template or type(method).default_template)),
            "descriptions": self.descriptions
            and _digest(json.dumps(self.descriptions, sort_keys=True).encode()),
            "prompts": backbone.prompts and f"{backbone.prompts.title} {backbone.prompts.digest}",
            "captions": self.captions.digest,
            "teacher": None if teacher is None else "self" if judge is None else judge.name,
            "teacher_weights": None if judge is None else [judge.image_fingerprint, judge.text_fingerprint],
            "model": backbone.name,
            "weights": [backbone.image_fingerprint, backbone.text_fingerprint],
            "arithmetic": backbone.arithmetic,
            "logit_scale": backbone.logit_scale,
            "preprocess": asdict(backbone.preprocess),
            "rendering": sorted({rendering(backbone, spec) for spec in method.needs}),
            "seed": self.seed,
            "version": __version__,
        }

    @cached_property
    def _files_digest(self) -> str | None:
        """Names the image files by place and size, where they are files: other files never share a result."""
        images = self.dataset.images
        if not isinstance(images, (list, tuple)):
            return None
        digest = hashlib.blake2b(digest_size=8)
        for image in images:
            if isinstance(image, (str, Path)):
                try:
                    size = os.stat(image).st_size
                except (OSError, ValueError):
                    size = -1
                digest.update(f"{image} {size}\n".encode(errors="backslashreplace"))
        return digest.hexdigest()

    @cached_property
    def _dataset_digest(self) -> str:
        """Names the images and what they show; worked out once, as there may be a million."""
        digest = hashlib.blake2b(self.dataset.targets.tobytes(), digest_size=8)
        for id in (
            self.dataset.name,
            *self.dataset.labels.names,
        ):  # two folders may both hold 1.jpg, 2.jpg, …
            digest.update(f"{id}\n".encode(errors="backslashreplace"))
        for id in self.dataset.ids:
            digest.update(f"{id}\n".encode(errors="backslashreplace"))
        return digest.hexdigest()


def _tree_digest(folder: str) -> str:
    """Names all files below a folder by where they are and their size."""
    files = sorted(file for file in Path(folder).rglob("*") if file.is_file())
    listed = "".join(f"{file.relative_to(folder)} {file.stat().st_size}\n" for file in files)
    return _digest(listed.encode(errors="backslashreplace"))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
