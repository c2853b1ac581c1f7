"""A session for people: a photo, a list, a folder in, labels out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from mltta.captions.store import CaptionBase
from mltta.decision import SHOWN_FROM, Decision, Presence
from mltta.errors import ConfigError, ImageError, WeightsError
from mltta.images.find import find_images, is_url
from mltta.images.remote import fetch
from mltta.labels import LabelSet
from mltta.methods.base import Method
from mltta.methods.registry import method_class
from mltta.model.prompts import DescriptionSource, TemplateSource
from mltta.session.execution import Execution
from mltta.session.prepare import Photo
from mltta.session.question import Question
from mltta.session.scorer import Scored
from mltta.session.session import Session

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone


class Tags(list[dict[str, Any]]):
    """All labels of one image as ``[{"label": …, "score": …}, …]``, best first, and which of them are shown.

    ``present`` names the labels shown, ``shown`` lists them with their scores. ``image`` is where the image came from;
    ``error`` says why there are no tags, ``note`` why none is shown. With ``Tagger(where=True)``, ``where`` maps each
    label shown to a grid (16, 16) from 0 to 1: how much each part of the photo speaks for it. With
    ``Tagger(explain=True)``, ``captions`` maps it to captions of similar pictures, each with its similarity.
    """

    def __init__(
        self,
        items: Iterable[dict[str, Any]] = (),
        *,
        present: Sequence[str] = (),
        image: str = "",
        error: str | None = None,
        note: str | None = None,
        where: Mapping[str, NDArray[np.float32]] | None = None,
        captions: Mapping[str, Sequence[tuple[str, float]]] | None = None,
    ):
        super().__init__(items)
        self.present = list(present)
        self.image = image
        self.error, self.note = error, note
        self.where = dict(where or {})
        self.captions = dict(captions or {})

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The labels shown with their scores, best first."""
        here = set(self.present)
        return [item for item in self if item["label"] in here]

    def top(self, k: int | None = None, threshold: float | None = None) -> list[dict[str, Any]]:
        """The k best labels, or those that score at least ``threshold``, whatever is shown."""
        return [item for item in self[:k] if threshold is None or item["score"] >= threshold]

    def record(self) -> dict[str, Any]:
        """What files hold of it, in plain data: the image, and the labels shown or the error."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        note = {} if self.note is None else {"note": self.note}
        return {"image": self.image, "present": self.present, "labels": self.shown, **note}


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
        threshold: show labels that score at least this (default: 0.3, or 0 with ``top_k``).
        top_k: show at most this many labels, best first.
        seed: chooses the random views, together with each image's content.
        execution: images at once, processes, compiling.
        where: also tell where in the photo the labels present were found, if the method can.
        explain: also tell which captions spoke for the labels present.
        allow_urls: fetch images that are given as http:// or https:// addresses.
        options: fields of the method's config.
        """
        chosen = method_class(method)
        chosen.Config.make(preset, **options)  # wrong settings are reported before anything is loaded
        if chosen.transductive:
            raise ConfigError(
                f"{chosen.name} answers once it has seen a whole dataset, so a photo's tags would depend on all the "
                "others; measure it with `mltta eval`, or tag with a method such as auto"
            )
        if presence is not None and not isinstance(presence, Presence):
            known = ", ".join(Presence.__dataclass_fields__)
            raise ConfigError(
                f"presence = {presence!r} is not a rule: give mltta.Presence(…), which takes {known}; to show labels "
                "from another score on, give threshold=0.3"
            )
        decision = Decision(threshold, top_k, presence or Presence())
        labels = LabelSet.of(labels)
        if model is None or isinstance(model, str):
            from mltta.model.load import load_backbone

            model = load_backbone(model)
        if not model.trained:
            raise WeightsError(f"{model.name} has random weights: its tags would mean nothing")
        question = Question(
            model, labels, template=template, descriptions=descriptions, captions=captions, teacher=teacher
        )
        self.backbone, self.labels = model, question.labels
        self.method = question.method(method, preset, **options)
        if self.method.merging != "sum":
            raise ConfigError(
                "merge='minmax' scales scores by their extremes over a whole dataset, so a photo's tags would depend "
                "on the other photos; for tagging use merge='sum'"
            )
        if where and type(self.method).where is Method.where:
            raise ConfigError(f"{method} cannot tell where a label was found: use auto")
        if self.method.emits != "odds":
            question.heard  # noqa: B018  captions are labelled now rather than with the first photo
        self.session = Session(
            question,
            [self.method],
            decision=decision,
            seed=seed,
            execution=execution,
            fetch=partial(_fetch, allow_urls),
            where=where,
            explain=explain,
        )

    @overload
    def __call__(self, images: list[Any] | tuple[Any, ...]) -> list[Tags]: ...
    @overload
    def __call__(self, images: Any) -> Tags: ...
    def __call__(self, images: Any) -> Tags | list[Tags]:
        """Tag a path, PIL image, array or bytes; for a folder, a list or a generator of these, a list of tags.

        A single image that cannot be read raises ImageError; in a list it becomes tags with an ``error``. A type
        checker cannot see that a path is a folder: give it a list of files, or use ``stream``.
        """
        if isinstance(images, str) and not images.strip():
            raise ImageError("expected a photo, got an empty path")
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

        Any iterable works, including an endless generator: images are requested only shortly before they are needed.
        """
        for (scored,) in self.session.stream(map(_photo, count(), images)):
            assert scored is not None  # the method is asked about every photo
            yield self._tags(scored)

    def about(self) -> dict[str, Any]:
        """Everything that an answer depends on except the image, in plain data: results that differ never mix."""
        return self.session.about(self.method)

    def _tags(self, scored: Scored) -> Tags:
        if scored.scores is None or scored.shown is None:
            return Tags(image=scored.photo.id, error=scored.error)
        names = self.labels.names
        order = np.argsort(-scored.scores, kind="stable").tolist()
        items = [{"label": names[i], "score": float(scored.scores[i])} for i in order]
        shown = [i for i in order if scored.shown[i]]
        where = {} if scored.where is None else {names[i]: scored.where[i] for i in shown}
        captions = {names[i]: scored.captions[i] for i in shown if i in scored.captions}
        present = [names[i] for i in shown]
        note = None
        if not present:
            least = (scored.photo.decision or self.session.decision).threshold or SHOWN_FROM
            best, needed = items[0]["score"], max(f"{least:.2f}", f"{least:g}", key=len)
            score = f"{best:.2f}" if round(best, 2) < least else f"{best:.5f}"
            note = f"No label scored at least {needed}; the highest: {items[0]['label']} {score}"
        return Tags(items, present=present, image=scored.photo.id, note=note, where=where, captions=captions)


def _photo(index: int, source: Any) -> Photo:
    """A file is called by its path, and generated views by its stem; a photo has its name already."""
    if isinstance(source, Photo):
        return replace(source, index=index)
    id = str(source) if isinstance(source, (str, Path)) else ""
    return Photo(index, id, source, Path(id).stem)


def _fetch(allow_urls: bool, photo: Photo) -> Photo:
    """Read a photo given by an address, or by a function, while others are worked on; leave others as they are."""
    if callable(photo.source):
        return replace(photo, source=photo.source())
    if not is_url(photo.source):
        return photo
    if not allow_urls:
        said = "addresses are fetched only where that is allowed: Tagger(allow_urls=True), --allow-urls"
        raise ImageError(f"{photo.source}: {said}")
    return replace(photo, source=fetch(photo.source))
