"""The pipeline for people: a photo, a list, a folder in, labels out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, overload

from mltta import __version__
from mltta.captions.labelled import label_captions
from mltta.captions.open import open_captions
from mltta.captions.store import CaptionBase, default_captions
from mltta.decision import Decision, Presence
from mltta.errors import ConfigError, ImageError, WeightsError
from mltta.images.find import find_images
from mltta.images.remote import fetch, is_url
from mltta.labels import BUILT_IN, LabelSet, with_known_words
from mltta.labels.languages import translated
from mltta.methods import Method, create_method, method_class
from mltta.methods.plugins import source_digest
from mltta.model.backbone import Backbone
from mltta.model.load import load_backbone
from mltta.model.prompts import DescriptionSource, TemplateSource, list_templates, load_descriptions
from mltta.session.cache import rendering
from mltta.session.execution import Execution
from mltta.session.features import Pipeline
from mltta.session.overlap import overlapped
from mltta.session.prepare import Photo
from mltta.session.score import Scored, Scorer
from mltta.tagger.tags import Tags

log = logging.getLogger("mltta")


class Tagger:
    """Tags images with the labels of a list, adapting the model to each image on its own.

    >>> tagger = Tagger(labels=["dog", "cat", "sofa"])                  # doctest: +SKIP
    >>> tagger("photo.jpg")[:2]                                         # doctest: +SKIP
    [{'label': 'dog', 'score': 0.71}, {'label': 'sofa', 'score': 0.25}]

    An answer never depends on the images before it or beside it, unless an online method was chosen: those learn
    from the images of a call, in their order. One tagger serves many threads; each call has a memory of its own.
    """

    def __init__(
        self,
        model: str | Backbone | None = "mini",
        labels: Any = "everyday",
        method: str = "auto",
        *,
        captions: CaptionBase | str | Path | Literal[False] | None = None,
        template: TemplateSource | None = None,
        descriptions: DescriptionSource | None = None,
        teacher: str | Backbone | None = None,
        preset: str = "paper",
        presence: Presence | None = None,
        threshold: float | None = None,
        top_k: int | None = None,
        seed: int = 0,
        execution: Execution | None = None,
        where: bool = False,
        explain: bool = False,
        allow_urls: bool = False,
        **options: Any,
    ):
        """Args:
        model: a name, or a backbone from ``load_backbone``, which takes weights, device, precision and prompts.
        labels: by default 993 everyday things; a list, a mapping to synonyms, "coco" / "voc" / "nuswide", or a file.
        method: how to look, or to adapt; ``list_methods()``, or a file of your own, "my_method.py".
        captions: a caption base, its folder, "hf-hub:ORG/NAME", or a file of captions that ``read_texts`` takes;
            False: none, for a method that can do without.
        template: one prompt template, several, or the name of a set, by default the method's own; only methods that
            tune no prompt take several.
        descriptions: sentences by label, or a JSON file with them.
        teacher: a second model for the methods that ask one, or "self".
        preset: "paper", or "released" for what the authors' code does differently.
        presence: the rule that says which labels an image shows.
        threshold: show labels that score at least this (default: 0.3, or 0 with a ``top_k``).
        top_k: show at most this many, best first.
        seed: chooses the random views, together with each image's content.
        execution: images at once, processes, compiling.
        where: also tell where in the photo the labels present were found, if the method can.
        explain: also tell which captions spoke for the labels present.
        allow_urls: fetch images that are given as http:// or https:// addresses.
        options: fields of the method's config.
        """
        self.labels = LabelSet.of(labels)
        if self.labels.source not in BUILT_IN:
            self.labels = with_known_words(self.labels)
        chosen = method_class(method)
        chosen.Config.make(preset, **options)  # wrong settings are named before any loading
        if chosen.transductive:
            raise ConfigError(
                f"{chosen.name} answers when it has seen a whole dataset, so a photo's tags would depend on all the "
                "others; measure it with `mltta eval`, or tag with a method such as auto"
            )
        if presence is not None and not isinstance(presence, Presence):
            known = ", ".join(field.name for field in fields(Presence))
            raise ConfigError(
                f"presence = {presence!r} is no rule: give mltta.Presence(…), which takes {known}; to show the labels "
                "from another score on, ask the answer: tags.top(threshold=0.3)"
            )
        backbone = model if isinstance(model, Backbone) else load_backbone(model)
        if not backbone.trained:
            raise WeightsError(f"{backbone.name} has random weights: its tags would mean nothing")
        if backbone.name == "mini":
            _say_if_not_english(self.labels)
        self.backbone, self.seed, self.execution = backbone, seed, execution or Execution()
        base: CaptionBase | Literal[False] | None
        if captions is None or captions is False or isinstance(captions, CaptionBase):
            base = captions
        else:
            base = False if captions == "none" else open_captions(captions, backbone)
        self.method = create_method(
            method,
            backbone,
            self.labels,
            template=template,
            descriptions=descriptions,
            captions=base,
            teacher=teacher,
            preset=preset,
            **options,
        )
        if self.method.merging != "sum":
            raise ConfigError(
                "merge='minmax' scales scores by their extremes over a whole dataset, so a photo's tags would depend "
                "on the photos beside it; for tagging use merge='sum'"
            )
        heard = None
        if self.method.emits != "odds":
            heard = label_captions(self.labels, backbone, base or default_captions(backbone))
        self.decision = Decision(heard, backbone.logit_scale, presence)
        if where and type(self.method).where is Method.where:
            raise ConfigError(f"{method} cannot tell where a label was found: use auto")
        self.where, self.explain = where, explain
        self._show = (threshold, top_k)
        self._given = {
            "template": template and list(list_templates(template)),
            "descriptions": None if descriptions is None else load_descriptions(descriptions, self.labels),
            "captions": base.digest if isinstance(base, CaptionBase) else "none" if base is False else None,
        }
        self.pipeline = Pipeline(
            backbone, self.method.needs, seed=seed, execution=self.execution, fetch=_Fetch(allow_urls)
        )

    @overload
    def __call__(self, images: list[Any] | tuple[Any, ...]) -> list[Tags]: ...
    @overload
    def __call__(self, images: Any) -> Tags: ...
    def __call__(self, images: Any) -> Tags | list[Tags]:
        """Tag a path, PIL image, array or bytes; for a folder, a list or a generator of these, a list of tags.

        A single image that cannot be read raises ImageError; in a list it becomes tags with an ``error``. A type
        checker cannot see that a path is a folder's: give it a list of files, or go through ``stream``.
        """
        if isinstance(images, (str, Path)) and Path(images).is_dir():
            return list(self.stream(find_images([images])))
        if isinstance(images, (list, tuple, Iterator)):
            return list(self.stream(images))
        tags = next(self.stream([images]))
        if tags.error is not None:
            raise ImageError(tags.error)
        return tags

    def stream(self, images: Iterable[Any]) -> Iterator[Tags]:
        """Tag images one after another, in order; the next ones are decoded while these are encoded.

        Any iterable will do, a generator without an end too: it is asked for no more than is worked on soon.
        """
        scorer = Scorer(self.method, self.decision, self.pipeline, where=self.where, explain=self.explain)
        photos = map(_photo, count(), images)
        behind = self.backbone.device.type != "cpu"
        for batch in overlapped(self.pipeline(photos), scorer.begin, scorer.finish, behind):
            yield from map(self._tags, batch)

    def about(self) -> dict[str, Any]:
        """All that an answer depends on but the image, in plain data: what differs in it is not to be mixed."""
        backbone, method = self.backbone, self.method
        teacher = method.problem.teacher
        judge = None if teacher is None or teacher.backbone is None else teacher.backbone
        return {
            "model": backbone.name,
            "weights": [backbone.image_fingerprint, backbone.text_fingerprint],
            "prompts": backbone.prompts and f"{backbone.prompts.title} {backbone.prompts.digest}",
            "arithmetic": f"{backbone.arithmetic} on {backbone.device.type}",
            "method": method.name,
            "method's file": source_digest(type(method)),
            "settings": asdict(method.config),
            **self._given,
            "teacher": teacher and (judge.image_fingerprint if judge else "self"),
            "presence": asdict(self.decision.rule),
            "labels": list(self.labels.names),
            "synonyms": [" | ".join(words) for words in self.labels.synonyms],
            "texts": list(self.labels.texts),
            "where": self.where,
            "threshold": self._show[0],
            "top-k": self._show[1],
            "seed": self.seed,
            "views": sorted({rendering(backbone, spec) for spec in method.needs}),
            "mltta": __version__,
        }

    def _tags(self, scored: Scored) -> Tags:
        if scored.score is None or scored.present is None:
            return Tags(image=scored.photo.id, error=scored.error)
        order = scored.score.argsort(descending=True, stable=True).tolist()
        items = [{"label": self.labels.names[i], "score": float(scored.score[i])} for i in order]
        present = [self.labels.names[i] for i in order if scored.present[i]]
        where = {}
        if scored.where is not None:
            where = {self.labels.names[i]: scored.where[i].numpy() for i in order if scored.present[i]}
        captions = {self.labels.names[i]: said for i, said in scored.captions.items()}
        found = Tags(items, present=present, image=scored.photo.id, where=where, captions=captions)
        return found.decided(*self._show)


def _photo(index: int, source: Any) -> Photo:
    """A file is called by its path, and generated views by its stem; a photo has its name already."""
    if isinstance(source, Photo):
        return replace(source, index=index)
    id = str(source) if isinstance(source, (str, Path)) else ""
    return Photo(index, id, source, Path(id).stem)


class _Fetch:
    """Reads photos given by an address, or by a function, while others are worked on; others are left as they are."""

    def __init__(self, allow_urls: bool):
        self.allow_urls = allow_urls

    def __call__(self, photo: Photo) -> Photo:
        if callable(photo.source):
            return replace(photo, source=photo.source())
        if not is_url(photo.source):
            return photo
        if not self.allow_urls:
            said = "addresses are fetched only where that is allowed: Tagger(allow_urls=True), --allow-urls"
            raise ImageError(f"{photo.source}: {said}")
        return replace(photo, source=fetch(photo.source))


def _say_if_not_english(labels: LabelSet) -> None:
    """Warn of labels that the embedded model cannot read, where that can be seen."""
    other = translated(labels.texts)
    if other is not None:
        language, found = other
        some = ", ".join(f"{english} for {label}" for label, english in list(found.items())[:3])
        log.warning(
            "these labels look %s, and the embedded model reads English only: say %s%s",
            language,
            some,
            " …" * (len(found) > 3),
        )
    elif not all(text.isascii() for text in labels.texts):
        log.warning("the embedded model reads English only; labels in other languages will score at random")
