"""The product for everyday use: images in, labels out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from torch import Tensor

from mltta.backbone import Backbone, load_backbone
from mltta.captions.base import CaptionBase, label_captions
from mltta.encode import Rendered, encode, render
from mltta.errors import ConfigError, ImageError, WeightsError
from mltta.images import find_images, load_image
from mltta.labels import LabelSet
from mltta.methods import Method, Problem, method_class
from mltta.prompts import DEFAULT_TEMPLATE


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


def create_method(
    name: str,
    backbone: Backbone,
    labels: Any,
    *,
    template: str = DEFAULT_TEMPLATE,
    context: Tensor | None = None,
    captions: CaptionBase | None = None,
    preset: str = "paper",
    **options: Any,
) -> Method:
    """A method ready to score encoded views against a label list.

    Args:
        name: "clip", "tpt", "ml-tta"; see ``list_methods()``.
        backbone: the frozen model.
        labels: anything ``LabelSet.of`` takes.
        template: prompt with one {}; the words in front of it start the context.
        context: (M, W) vectors that replace those words.
        captions: a caption base of this backbone; labels it does not mention, or all without one, get
            composed captions.
        preset: "paper", or "released" for what the authors' code does differently.
        options: fields of the method's config.
    """
    cls = method_class(name)
    config = cls.Config.make(preset, **options)
    labels = LabelSet.of(labels)
    text = backbone.encode_labels(labels, template, context)
    labelled = label_captions(labels, backbone, captions) if cls.uses_captions else None
    return cls(Problem(text, backbone.logit_scale, labelled), config)


class Tagger:
    """Tags images with the labels of a list, adapting the model to each image on its own.

    >>> tagger = Tagger("ViT-B/16", labels=["dog", "cat", "sofa"])      # doctest: +SKIP
    >>> tagger("photo.jpg")[:2]                                         # doctest: +SKIP
    [{'label': 'dog', 'score': 0.71}, {'label': 'sofa', 'score': 0.25}]

    An answer never depends on the images before it or beside it.
    """

    def __init__(
        self,
        model: str | Backbone | None,
        labels: Any,
        *,
        method: str = "ml-tta",
        weights: str | Path | None = None,
        captions: CaptionBase | str | Path | None = None,
        template: str = DEFAULT_TEMPLATE,
        preset: str = "paper",
        device: str = "auto",
        seed: int = 0,
        batch_size: int | None = None,
        quick_gelu: bool | None = None,
        allow_torchscript: bool = False,
        **options: Any,
    ):
        """Args:
        model: a backbone, or anything ``load_backbone`` takes.
        labels: a list, a mapping to synonyms, "voc" / "coco" / "nuswide", or a label file.
        method: how to adapt; ``list_methods()``.
        weights: a pretrained tag or a local weights file.
        captions: a caption base, its folder, or a text file with one caption a line.
        seed: chooses the random views, together with each image's content.
        batch_size: images adapted at once on a GPU; on the CPU always one.
        options: fields of the method's config.
        """
        self.labels = LabelSet.of(labels)
        if not isinstance(model, Backbone):
            model = load_backbone(
                model, weights, device=device, quick_gelu=quick_gelu, allow_torchscript=allow_torchscript
            )
        if not model.trained:
            raise WeightsError(f"{model.name} has random weights: its tags would mean nothing")
        self.backbone = model
        self.seed = seed
        if isinstance(captions, (str, Path)):
            captions = open_captions(captions, model)
        self.method = create_method(
            method, model, self.labels, template=template, captions=captions, preset=preset, **options
        )
        if getattr(self.method.config, "merge", "sum") != "sum":
            raise ConfigError(
                "merge='minmax' scales scores by their extremes over a whole dataset, so a photo's tags would depend "
                "on the photos beside it; for tagging use merge='sum'"
            )
        self.batch_size = 1 if model.device.type == "cpu" else (batch_size or 8)

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
        with ThreadPoolExecutor(max_workers=1) as worker:
            waiting = iter(images)
            ahead = [worker.submit(self._prepare, image) for image in islice(waiting, self.batch_size + 1)]
            while ahead:
                batch = [ahead.pop(0).result() for _ in range(min(self.batch_size, len(ahead)))]
                ahead += [worker.submit(self._prepare, image) for image in islice(waiting, self.batch_size)]
                yield from self._tag(batch)

    def scores(self, images: Sequence[Rendered]) -> Tensor:
        """Scores (B, C) of rendered images: probabilities over the labels, from the method's mean logits."""
        encoded = encode(self.backbone, images)
        branches = self.method.branches(encoded)
        return (self.method.merge(branches) / len(branches)).softmax(dim=-1).cpu()

    def _prepare(self, source: Any) -> tuple[str, Rendered | str]:
        """Decode one image and render its views, or say what is wrong with it."""
        name = str(source) if isinstance(source, (str, Path)) else ""
        try:
            return name, render(
                load_image(source), self.method.needs, self.backbone.preprocess, seed=self.seed
            )
        except ImageError as error:
            return name, str(error)

    def _tag(self, batch: list[tuple[str, Rendered | str]]) -> Iterator[Tags]:
        good = [rendered for _, rendered in batch if not isinstance(rendered, str)]
        scores = iter(self.scores(good) if good else ())
        for name, rendered in batch:
            if isinstance(rendered, str):
                yield Tags(image=name, error=rendered)
            else:
                yield self._tags(name, next(scores))

    def _tags(self, name: str, score: Tensor) -> Tags:
        order = score.argsort(descending=True, stable=True).tolist()
        items = [{"label": self.labels.names[i], "score": float(score[i])} for i in order]
        return Tags(items, present=[item["label"] for item in items if item["score"] >= PRESENT], image=name)


#: a label is judged present from this share of the probability over all labels
PRESENT = 0.1


def open_captions(source: str | Path, backbone: Backbone) -> CaptionBase:
    """A saved base, or a text file to build one from."""
    path = Path(source)
    return CaptionBase.load(path, backbone) if path.is_dir() else CaptionBase.from_text_file(path, backbone)
