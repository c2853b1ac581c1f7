"""Finding photos of a library by a text, labels, date, folder or another photo; and the records of what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltta.arrays import to_numpy
from mltta.decision import SHOWN_FROM, Decision
from mltta.errors import MlttaError
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.library.index import File, Library
from mltta.library.query import parse
from mltta.library.vectors import best, photo_vector, similarities
from mltta.session.cache import feature_key
from mltta.session.features import encode_images
from mltta.session.prepare import Photo, content_of
from mltta.session.scorer import Scored
from mltta.tagger import Tags

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone


class Hit(NamedTuple):
    """A photo that was found, and how well it fits: a cosine similarity, a label score, or 0 if sorted by date."""

    file: File
    score: float


def search(
    library: Library,
    backbone: Callable[[], Backbone],
    text: str = "",
    has: str = "",
    *,
    threshold: float | None = None,
    since: str = "",
    until: str = "",
    folder: Path | None = None,
    count: int = 20,
) -> list[Hit]:
    """Find photos that meet everything that is given, best first; copies of a photo count once.

    Args:
        backbone: opens the model of the library, needed only for a text.
        text: a description, by which photos are sorted.
        has: a query over labels (`mltta.library.query`), by whose scores they are sorted without a text.
        since: an ISO date or its beginning, such as "2024-05"; ``until`` is included.
    """
    inside = "" if folder is None else os.path.join(os.path.abspath(folder), "")
    files = distinct(
        file
        for file in library.files()
        if not file.error and str(file.path).startswith(inside) and since <= file.date
        if not until or file.date[: len(until)] <= until
    )
    scores = np.zeros(len(files), np.float32)
    if has:
        number, about = library.last_list()
        query = parse(has, library.last_labels())
        found = zip(files, library.scores(number, about["labels"], files), strict=True)
        pairs = [(file, own) for file, own in found if own is not None]
        rows = np.array([own for _, own in pairs], np.float32).reshape(len(pairs), len(about["labels"]))
        fits = query.matches(rows, SHOWN_FROM if threshold is None else threshold)
        files = [file for (file, _), fit in zip(pairs, fits, strict=True) if fit]
        scores = query.evaluate(rows[fits])
    if text:
        every = similarities(library.vectors(), text_vectors(library, backbone(), [text]))[:, 0]
        scores = every[np.array([file.photo - 1 for file in files], np.int64)]
    if not (text or has):  # the latest first
        files.sort(key=lambda file: file.date, reverse=True)
    return [Hit(files[int(i)], float(scores[i])) for i in best(scores, count)]


def distinct(files: Iterable[File]) -> list[File]:
    """The first file of each photo."""
    found: dict[int, File] = {}
    for file in files:
        found.setdefault(file.photo, file)
    return list(found.values())


def text_vectors(library: Library, backbone: Backbone, texts: Sequence[str]) -> NDArray[np.float32]:
    """Vectors (N, D) of texts; a model other than that of the library is refused."""
    _, about = library.last_list()
    if backbone.text_fingerprint != about["weights"][1]:
        made = f"{about['model']}, not with {backbone.name}"
        raise MlttaError(f"{library.folder} was made with {made}: give --model")
    return np.asarray(to_numpy(backbone.encode_texts(list(texts))), np.float32)


def similar(library: Library, photo: Path, count: int, backbone: Callable[[], Backbone]) -> list[Hit]:
    """The photos that are most similar to a photo, which need not be in the library; its own copies are left out."""
    number, vectors = library.number_of(content_of(photo)[0]), library.vectors()
    own = vectors[number - 1] if number else vector_of(library, backbone(), photo)
    files = distinct(file for file in library.files() if file.photo not in (0, number))
    scores = similarities(vectors, own[None].astype(np.float32))[[file.photo - 1 for file in files], 0]
    return [Hit(files[int(i)], float(scores[i])) for i in best(scores, count)]


def vector_of(library: Library, backbone: Backbone, photo: Path) -> NDArray[np.float16]:
    """The vector of a photo that is not in the library."""
    keys = library.features()
    own, seed = [key["spec"] for key in keys], int(keys[0]["seed"]) if keys else 0
    specs: list[AnySpec] = [LocalSpec(**one) if "window" in one else ViewSpec(**one) for one in own]
    encoded = encode_images(backbone, [photo], specs, seed=seed)
    rows = [np.asarray(to_numpy(encoded.features(spec))[0, 0], np.float16) for spec in specs]
    library.accept([feature_key(backbone, spec, seed) for spec in specs], len(rows[0]))
    return photo_vector(rows)


def shown_path(file: File) -> str:
    """A path as users write it: relative if it lies in the current folder."""
    return os.fspath(file.path).removeprefix(os.path.join(os.getcwd(), ""))


def records_of(library: Library, files: Sequence[File], decision: Decision | None = None) -> Iterator[Any]:
    """The record of each file: its labels of the last label list that are shown, or why it has none."""
    decision = decision or Decision()
    (number, about), labels = library.last_list(), library.last_labels()
    for file, scores in zip(files, library.scores(number, about["labels"], files), strict=True):
        image = shown_path(file)
        if scores is None:
            said = file.error or f"{image}: not tagged with this label list; rerun mltta tag --library"
            yield {"image": image, "error": said}
            continue
        shown, keywords = decision.shown(scores[None])[0], decision.keywords(scores[None])[0]
        some = np.flatnonzero(shown) if shown.any() else np.array([scores.argmax()])
        photo = Photo(0, image, None)
        scored = Scored(photo, scores=scores[some], shown=shown[some], keywords=keywords[some])
        yield Tags.of(labels.pick(some.tolist()), scored, decision).record()
