"""The tagger: tag a photo, a list of photos or a folder."""

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
from mltta.decision import KEYWORDS_FROM, SHOWN_FROM, Decision, Presence
from mltta.errors import ConfigError, ImageError, WeightsError
from mltta.images.find import find_images, is_url
from mltta.labels import LabelSet
from mltta.labels.languages import in_language
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
    """The scores of all labels for one image, ``[{"label": …, "score": …}, …]``, best first, and which are shown.

    ``present`` contains the labels shown, ``shown`` the same labels with their scores, and ``keywords`` those of them
    that score high enough for keywords, as paths such as "animal|dog". ``image`` is the source of the
    image, ``error`` the reason if it could not be tagged, ``note`` the reason if no label is shown. With
    ``Tagger(where=True)``, ``where`` maps each label shown to a heat map (16, 16) with values from 0 to 1. With
    ``Tagger(explain=True)``, ``captions`` maps it to captions of similar pictures, with their similarities.
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
        self.present, self.keywords = list(present), list[str]()
        self.image = image
        self.error, self.note = error, note
        self.where = dict(where or {})
        self.captions = dict(captions or {})

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The labels shown, with their scores, best first."""
        here = set(self.present)
        return [item for item in self if item["label"] in here]

    def top(self, k: int | None = None, threshold: float | None = None) -> list[dict[str, Any]]:
        """Return at most k best labels that score at least ``threshold``, independent of ``shown``."""
        return [item for item in self[:k] if threshold is None or item["score"] >= threshold]

    def record(self) -> dict[str, Any]:
        """Return the record for output files as plain data: the image, and the labels shown or the error."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        note = {} if self.note is None else {"note": self.note}
        kept = {"present": self.present, "keywords": self.keywords, "labels": self.shown}
        return {"image": self.image, **kept, **note}


class Tagger:
    """Tag images with labels of a list, each image on its own.

    >>> tagger = Tagger(labels=["dog", "cat", "sofa"])                  # doctest: +SKIP
    >>> tagger("photo.jpg")[:2]                                         # doctest: +SKIP
    [{'label': 'dog', 'score': 0.71}, {'label': 'sofa', 'score': 0.25}]

    Results never depend on other images, except with online methods, which learn from the images of a call in order.
    A tagger is thread-safe; each call has its own state.
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
        keywords_from: float = KEYWORDS_FROM,
        language: str | None = None,
        seed: int = 0,
        execution: Execution | None = None,
        where: bool = False,
        explain: bool = False,
        allow_urls: bool = False,
        engine: str = "auto",
        **options: Any,
    ):
        """Args:
        model: a name, or a backbone from ``load_backbone``, which takes weights, device, precision and prompts.
        labels: a list, a mapping to synonyms, "everyday" (1,029 labels), "coco", "voc", "nuswide", or a file.
        method: method name (see ``list_methods()``) or path to a Python file, such as "my_method.py".
        captions: a caption base, its folder, "hf-hub:ORG/NAME", or a caption file that ``read_texts`` accepts;
            False for none, if the method does not require captions.
        template: one prompt template, several, or the name of a set (default: that of the method); methods that
            tune prompts accept only one.
        descriptions: sentences by label, or a JSON file that contains them.
        teacher: a second model for methods that need one, or "self".
        preset: "paper", or "released" for the settings of the authors' code.
        presence: rule that decides which labels are present.
        threshold: minimum score of labels shown (default: 0.3, or 0 with ``top_k``).
        top_k: maximum number of labels shown.
        keywords_from: minimum score of keywords.
        language: language in which labels are shown, such as "de"; scores do not change.
        seed: random seed; views depend on it and the content of the image.
        execution: batch size, worker processes, compilation.
        where: also return heat maps of the labels shown, if the method supports it.
        explain: also return the captions that support the labels shown.
        allow_urls: fetch images from http:// and https:// URLs.
        engine: for a model given by name: onnx, torch, or auto (the faster one for the method).
        options: settings of the method.
        """
        chosen = method_class(method)
        chosen.Config.make(preset, **options)  # report wrong settings before loading anything
        if chosen.transductive:
            raise ConfigError(
                f"{chosen.name} is transductive: it needs a whole dataset, so tags would depend on the other photos. "
                "Evaluate it with `mltta eval`, or tag with another method such as auto"
            )
        if presence is not None and not isinstance(presence, Presence):
            known = ", ".join(Presence.__dataclass_fields__)
            raise ConfigError(
                f"presence = {presence!r} is not a rule: give mltta.Presence(…), which takes {known}; to change the "
                "minimum score, use threshold=0.3"
            )
        decision = Decision(threshold, top_k, presence or Presence(), keywords_from)
        labels = LabelSet.of(labels)
        if model is None or isinstance(model, str):
            from mltta.model.load import load_backbone

            model = load_backbone(model, engine=engine, any_method=not chosen.array_api)
        if not model.trained:
            raise WeightsError(f"{model.name} has random weights, so its tags would be meaningless")
        question = Question(
            model, labels, template=template, descriptions=descriptions, captions=captions, teacher=teacher
        )
        self.backbone, self.labels = model, in_language(question.labels, language)
        #: what a user should know about the labels
        self.notes = question.notes
        self.method = question.method(method, preset, **options)
        if self.method.merging != "sum":
            raise ConfigError(
                "merge='minmax' scales scores over a whole dataset, so tags would depend on the other photos; "
                "use merge='sum' for tagging"
            )
        if where and type(self.method).where is Method.where:
            raise ConfigError(f"{method} does not support heat maps (where): use auto")
        if self.method.emits != "odds":
            question.heard  # noqa: B018  label captions now, not with the first photo
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
        """Tag a path, PIL image, array or bytes; a folder, list or generator of these returns a list of tags.

        A single image that cannot be read raises ImageError; in a list, its tags have an ``error``. Type checkers
        cannot tell folders from files: for folders, pass a list of files or use ``stream``.
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
        """Yield the tags of images in order; later images are decoded while earlier ones are encoded.

        Any iterable works, including an endless generator: images are requested only shortly before they are needed.
        """
        for (scored,) in self.session.stream(map(_photo, count(), images)):
            assert scored is not None  # the method scores every photo
            yield self._tags(scored)

    def about(self) -> dict[str, Any]:
        """Return everything except the image that results depend on, as plain data."""
        return self.session.about(self.method) | {"shown_as": list(self.labels.display)}

    def keywords(self, shown: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the keywords of a photo from the labels shown and their scores, as in a record of an earlier run."""
        scores = np.array([[item["score"] for item in shown]], np.float32)
        path = dict(zip(self.labels.display, self.labels.keywords, strict=True))
        written = self.session.decision.keywords(scores)[0]
        return [path[item["label"]] for item, keep in zip(shown, written, strict=True) if keep]

    def _tags(self, scored: Scored) -> Tags:
        if scored.scores is None or scored.shown is None or scored.keywords is None:
            return Tags(image=scored.photo.id, error=scored.error)
        names = self.labels.display
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
            note = f"No label scored at least {needed}. Highest: {items[0]['label']} {score}"
        found = Tags(items, present=present, image=scored.photo.id, note=note, where=where, captions=captions)
        found.keywords = [self.labels.keywords[i] for i in shown if scored.keywords[i]]
        return found


def _photo(index: int, source: Any) -> Photo:
    """Wrap a source as a photo; files are identified by path, their generated views by stem."""
    if isinstance(source, Photo):
        return replace(source, index=index)
    id = str(source) if isinstance(source, (str, Path)) else ""
    return Photo(index, id, source, Path(id).stem)


def _fetch(allow_urls: bool, photo: Photo) -> Photo:
    """Read a photo given by a URL or a function, in the background; return others unchanged."""
    if callable(photo.source):
        return replace(photo, source=photo.source())
    if not is_url(photo.source):
        return photo
    if not allow_urls:
        said = "fetching URLs is not enabled: use Tagger(allow_urls=True) or --allow-urls"
        raise ImageError(f"{photo.source}: {said}")
    from mltta.images.remote import fetch

    return replace(photo, source=fetch(photo.source))
