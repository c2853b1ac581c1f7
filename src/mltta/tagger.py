"""The product for everyday use: images in, labels out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mltta.captions.labelled import label_captions
from mltta.captions.open import open_captions
from mltta.captions.store import CaptionBase, default_captions
from mltta.decision import Presence
from mltta.errors import ConfigError, ImageError, WeightsError
from mltta.images.load import find_images, load_image
from mltta.labels import LabelSet
from mltta.methods import create_method, method_class
from mltta.methods.base import OnlineMethod, State
from mltta.model.backbone import Backbone, load_backbone
from mltta.model.learned_prompts import AnyPrompts
from mltta.model.prompts import DEFAULT_TEMPLATE, DescriptionSource, TemplateSource
from mltta.pipeline.encode import (
    Decoded,
    Encoded,
    Look,
    Rendered,
    decode,
    encode,
    encode_decoded,
    look_at,
    render,
)
from mltta.pipeline.execution import Execution

log = logging.getLogger("mltta")


class Tags(list[dict[str, Any]]):
    """All labels of one image as ``[{"label": …, "score": …}, …]``, best first, plus those judged present.

    ``present`` lists the labels the image shows; ``image`` is where it came from; ``error`` says why there
    are no tags, when there are none.
    """

    def __init__(
        self,
        items: Iterable[dict[str, Any]] = (),
        *,
        present: Sequence[str] = (),
        image: str = "",
        error: str | None = None,
    ):
        super().__init__(items)
        self.present = list(present)
        self.image = image
        self.error = error

    def top(self, k: int | None = None, threshold: float | None = None) -> list[dict[str, Any]]:
        """The k best labels, or those that score at least ``threshold``."""
        return [item for item in self[:k] if threshold is None or item["score"] >= threshold]


@dataclass(frozen=True)
class _Prepared:
    """A decoded image, with its views unless a GPU makes them, or what is wrong with it."""

    name: str
    rendered: Rendered = field(default_factory=dict)
    decoded: Decoded | None = None
    look: Look | None = None
    error: str | None = None


class Tagger:
    """Tags images with the labels of a list, adapting the model to each image on its own.

    >>> tagger = Tagger(labels=["dog", "cat", "sofa"])                  # doctest: +SKIP
    >>> tagger("photo.jpg")[:2]                                         # doctest: +SKIP
    [{'label': 'dog', 'score': 0.71}, {'label': 'sofa', 'score': 0.25}]

    An answer never depends on the images before it or beside it, unless an online method was chosen: those learn
    from the images of a call, in their order.
    """

    def __init__(
        self,
        model: str | Backbone | None = "mini",
        labels: Any = "coco",
        *,
        method: str = "ml-tta",
        weights: str | Path | None = None,
        prompts: AnyPrompts | str | Path | None = None,
        captions: CaptionBase | str | Path | None = None,
        template: TemplateSource = DEFAULT_TEMPLATE,
        descriptions: DescriptionSource | None = None,
        teacher: str | Backbone | None = None,
        preset: str = "paper",
        device: str = "auto",
        seed: int = 0,
        presence: Presence | None = None,
        image_dtype: str | None = None,
        batch_size: int | None = None,
        jacobian: bool | None = None,
        quick_gelu: bool | None = None,
        allow_torchscript: bool = False,
        **options: Any,
    ):
        """Args:
        model: a backbone, or anything ``load_backbone`` takes.
        labels: by default COCO's 80; a list, a mapping to synonyms, "voc" / "coco" / "nuswide", or a label file.
        method: how to adapt; ``list_methods()``.
        weights: a pretrained tag or a local weights file.
        prompts: CoOp's or MaPLe's learned prompts, or a file of them, in place of the template's words.
        captions: a caption base, its folder, "hf-hub:ORG/NAME", or a file of captions that ``read_texts`` takes.
        template: one prompt template, several, or the name of a set; only "clip" and other methods that tune no
            prompt take several.
        descriptions: sentences by label, or a JSON file with them.
        teacher: a second model for the methods that ask one, or "self".
        seed: chooses the random views, together with each image's content.
        presence: the rule that says which labels an image shows.
        image_dtype: precision of the image tower, chosen by the device.
        batch_size: images adapted at once on a GPU, chosen by its memory; on the CPU always one.
        jacobian: take first-step gradients from a kept Jacobian; by default on a GPU after hundreds of images.
        options: fields of the method's config.
        """
        self.labels = LabelSet.of(labels)
        config = method_class(method).Config.make(
            preset, **options
        )  # wrong settings are named before any loading
        if getattr(config, "merge", "sum") != "sum":
            raise ConfigError(
                "merge='minmax' scales scores by their extremes over a whole dataset, so a photo's tags would depend "
                "on the photos beside it; for tagging use merge='sum'"
            )
        if not isinstance(model, Backbone):
            model = load_backbone(
                model,
                weights,
                device=device,
                image_dtype=image_dtype,
                quick_gelu=quick_gelu,
                allow_torchscript=allow_torchscript,
            )
        if not model.trained:
            raise WeightsError(f"{model.name} has random weights: its tags would mean nothing")
        if prompts is not None:
            model = model.prompted(prompts)
        if model.name == "mini" and not all(text.isascii() for text in self.labels.texts):
            log.warning(
                "the embedded model reads English only; labels in other languages will score at random"
            )
        self.backbone = model
        self.seed = seed
        if isinstance(captions, (str, Path)):
            captions = open_captions(captions, model)
        captions = captions or default_captions(model)
        self.method = create_method(
            method,
            model,
            self.labels,
            template=template,
            descriptions=descriptions,
            captions=captions,
            teacher=teacher,
            preset=preset,
            **options,
        )
        self.captions = self.method.problem.captions or label_captions(self.labels, model, captions)
        self.presence = presence or Presence()
        self._state: State | None = None
        #: whether a GPU makes the views
        self.on_device = model.device.type != "cpu" and not any(spec.generated for spec in self.method.needs)
        execution = Execution(batch_size, jacobian=jacobian)
        execution.apply(self.method)
        self.batch_size = 1 if model.device.type == "cpu" else execution.images_at_once(model)

    def __call__(self, images: Any) -> Tags | list[Tags]:
        """Tag a path, PIL image, array or bytes; for a folder or a list of these, a list of tags.

        A single image that cannot be read raises ImageError; in a list it becomes tags with an ``error``.
        """
        if isinstance(images, (str, Path)) and Path(images).is_dir():
            return list(self.stream(find_images([images])))
        if isinstance(images, (list, tuple)):
            return list(self.stream(images))
        tags = next(self.stream([images]))
        if tags.error is not None:
            raise ImageError(tags.error)
        return tags

    def stream(self, images: Iterable[Any]) -> Iterator[Tags]:
        """Tag images one after another, in order; the next ones are decoded while these are encoded."""
        self._state = self.method.start() if isinstance(self.method, OnlineMethod) else None
        with ThreadPoolExecutor(max_workers=1) as worker:
            waiting = iter(images)
            ahead = [worker.submit(self._prepare, image) for image in islice(waiting, self.batch_size + 1)]
            while ahead:
                batch = [ahead.pop(0).result() for _ in range(min(self.batch_size, len(ahead)))]
                ahead += [worker.submit(self._prepare, image) for image in islice(waiting, self.batch_size)]
                yield from self._tag(batch)

    def _encode(self, images: Sequence[_Prepared]) -> Encoded:
        looks = [image.look for image in images if image.look is not None]
        decoded = [image.decoded for image in images if image.decoded is not None]
        if decoded:
            return encode_decoded(self.backbone, decoded, self.method.needs, seed=self.seed, looks=looks)
        return encode(self.backbone, [image.rendered for image in images], looks)

    def _evidence(self, images: Sequence[_Prepared]) -> tuple[Tensor, Tensor]:
        """Evidence (B, C) for each label of some images, and which labels they show."""
        try:
            with torch.inference_mode(False):  # methods take gradients, whatever the caller is doing
                return self._judge(self._encode(images))
        except torch.cuda.OutOfMemoryError:
            if len(images) == 1 or self.method.online:  # that would learn from some images twice
                raise
        torch.cuda.empty_cache()
        log.warning("out of GPU memory with %d images: going on with half as many", len(images))
        parts = [self._evidence(part) for part in (images[: len(images) // 2], images[len(images) // 2 :])]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def _judge(self, encoded: Encoded) -> tuple[Tensor, Tensor]:
        branches = self._branches(encoded)
        probability = self.method.probabilities(branches)
        views = encoded.features(self.method.needs[0])
        votes = self.presence.votes(views, self.captions, self.backbone.logit_scale)
        evidence = self.presence.evidence(probability, votes)
        return evidence.cpu(), self.presence.present(evidence, votes).cpu()

    def _branches(self, encoded: Encoded) -> dict[str, Tensor]:
        if not isinstance(self.method, OnlineMethod):
            return self.method.branches(encoded)
        found = []
        for image in range(len(encoded)):
            state = self.method.start() if self._state is None else self._state
            branches, self._state = self.method.step(state, encoded[image])
            found.append(branches)
        return {name: torch.cat([one[name] for one in found]) for name in found[0]}

    def _prepare(self, source: Any) -> _Prepared:
        """Decode one image and render its views, or say what is wrong with it."""
        name = str(source) if isinstance(source, (str, Path)) else ""
        try:
            image, stem = load_image(source), Path(name).stem
            decoded = decode(image) if self.on_device else None
            needs = () if self.on_device else self.method.needs
            rendered = render(image, needs, self.backbone.preprocess, seed=self.seed, name=stem)
        except ImageError as error:
            return _Prepared(name, error=str(error))
        look = look_at(lambda: image, seed=self.seed, name=stem) if self.method.looks_again else None
        return _Prepared(name, rendered, decoded, look)

    def _tag(self, batch: list[_Prepared]) -> Iterator[Tags]:
        good = [image for image in batch if image.error is None]
        answers = zip(*self._evidence(good), strict=True) if good else iter(())
        for image in batch:
            bad = image.error is not None
            yield Tags(image=image.name, error=image.error) if bad else self._tags(image.name, *next(answers))

    def _tags(self, name: str, evidence: Tensor, present: Tensor) -> Tags:
        order = evidence.argsort(descending=True, stable=True).tolist()
        items = [{"label": self.labels.names[i], "score": min(1.0, float(evidence[i]))} for i in order]
        return Tags(items, present=[self.labels.names[i] for i in order if present[i]], image=name)
