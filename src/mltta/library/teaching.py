"""Teaching labels: answers about photos of a library become heads (`mltta.methods.taught`), in closed form.

A head is a direction from the mean of the library to the examples, whitened by the covariance of the library (linear
discriminant analysis). It is blended with the label's text by how well the text describes the examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mltta.arrays import to_numpy
from mltta.errors import ConfigError, MlttaError
from mltta.library.index import Library
from mltta.methods.taught import Heads, fingerprint, summary
from mltta.session.features import Features
from mltta.session.prepare import Photo

if TYPE_CHECKING:
    from mltta.tagger import Tagger

Floats = NDArray[np.float32]
#: log-odds of a label that its text does not describe, and how many photos the trust in a text is worth
RARE, TRUST = -3.9, 0.5
#: standard deviations above the mean at which a text describes its photos well
DESCRIBED = 1.5
#: share of the identity in a covariance, and photos that the mean of the library is worth beside examples
SHRINKAGE, BACKGROUND = 0.9, 4.0
#: weight of what photos show beside a text, for one example and for each doubling
GAIN, DOUBLING = 0.35, 0.1
#: how often examples are asked which of their windows they have in common
ROUNDS = 3
#: photos of the library that examples are compared with, and the fewest that are enough
COMPARED, FEWEST = 500, 10


class Examples(NamedTuple):
    """What photos look like: their whole (N, D) and their windows (N, L, D)."""

    whole: Floats
    windows: Floats

    def some(self, places: list[int]) -> Examples:
        return Examples(self.whole[places], self.windows[places])


class Direction(NamedTuple):
    """Vectors of the whole photo and of windows, with the mean and spread of their scores in the library."""

    whole: Floats
    window: Floats
    means: list[float]
    spreads: list[float]

    def of(self, photos: Examples) -> Floats:
        """How far photos stand out from the library, in standard deviations."""
        whole = (photos.whole @ self.whole - self.means[0]) / self.spreads[0]
        window = ((photos.windows @ self.window).max(axis=1) - self.means[1]) / self.spreads[1]
        return np.asarray((whole + window) / 2, np.float32)


class Teacher:
    """Learns heads against the photos of a library, most of which show something else."""

    def __init__(self, library: Examples):
        self._library = library
        self._mean, self._inverse = _whitening(library.whole)
        some = library.windows[:, :: max(1, library.windows.shape[1] // 20)]
        self._window_mean, self._window_inverse = _whitening(some.reshape(-1, some.shape[-1]))

    def learn(
        self, yes: Examples, no: Examples, odds_of_yes: Floats, odds: Floats
    ) -> tuple[float, Floats, Floats, float]:
        """Learn a label: the parts of its head in `mltta.methods.taught.Heads`.

        Args:
            yes: photos that show it, at least one.
            no: photos that do not.
            odds_of_yes: log-odds of its text for the photos that show it.
            odds: the same for the photos of the library.
        """
        n, found = len(yes.whole), self._direction(yes, no)
        spread = max(float(odds.std()), 1e-3)
        described = float(odds_of_yes.mean() - odds.mean()) / spread / DESCRIBED
        trust = (TRUST + n * min(max(described, 0.0), 1.0)) / (TRUST + n)
        # how far other photos of the label stand out: less than the examples, which judge themselves
        height = max(1.0, float(found.of(yes).mean()) * (1 - 0.5 / n))
        beside = GAIN + DOUBLING * math.log2(n)
        gain = trust * spread * beside + (1 - trust) * height
        text = gain * trust / (beside * spread)  # 1 if the text is trusted
        first, second = (gain / (2 * own) for own in found.spreads)
        bias = (trust - text) * float(odds.mean()) + (1 - trust) * (RARE - height**2 / 2)
        bias -= first * found.means[0] + second * found.means[1]
        return text, first * found.whole, second * found.window, bias

    def _direction(self, yes: Examples, no: Examples) -> Direction:
        """The direction from the library, and from photos that do not show the label, to those that do."""
        weight = BACKGROUND + len(no.whole)
        mean = (BACKGROUND * self._mean + no.whole.sum(axis=0)) / weight
        whole = self._inverse @ (yes.whole.mean(axis=0) - mean)
        window = self._window_inverse @ (yes.windows.mean(axis=(0, 1)) - self._window_mean)
        for _ in range(ROUNDS):
            far = (BACKGROUND * self._window_mean + _attended(no.windows, window).sum(axis=0)) / weight
            window = self._window_inverse @ (_attended(yes.windows, window).mean(axis=0) - far)
        scores = self._library.whole @ whole, (self._library.windows @ window).max(axis=1)
        means, spreads = (
            [float(one.mean()) for one in scores],
            [max(float(one.std()), 1e-6) for one in scores],
        )
        return Direction(whole, window, means, spreads)


def _attended(windows: Floats, vector: Floats) -> Floats:
    """For each photo (N, L, D), the mean of its windows (N, D), those along a vector counting more."""
    if not len(windows):
        return windows[:, 0]
    along = windows @ vector
    along = along / max(float(along.std()), 1e-6)
    weight = np.exp(along - along.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    return np.asarray((weight[:, None] @ windows)[:, 0])


def _whitening(rows: Floats) -> tuple[Floats, Floats]:
    """The mean of rows (N, D), and the inverse of their covariance shrunk towards the identity."""
    covariance = np.cov(rows.T.astype(np.float64))
    scale = max(float(np.diag(covariance).mean()), 1e-9)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * scale * np.eye(len(covariance))
    return rows.mean(axis=0), np.asarray(np.linalg.inv(shrunk), np.float32)


def teach(library: Library, tagger: Tagger) -> bytes:
    """Learn all labels that have answers; return the content of a file for ``--labels``.

    Args:
        tagger: opened with the features of the library, and with a label list that contains these labels.
    """
    answers = {label: own for label, own in library.answers().items() if any(own.values())}
    if not answers:
        raise ConfigError(f"{library.folder} has no examples that show a label: use --label LABEL PHOTO…")
    answered = {photo for own in answers.values() for photo in own}
    others = sorted({file.photo for file in library.files() if not file.error} - answered)
    if len(others) < FEWEST:
        raise ConfigError(f"{library.folder} has {len(others)} other photos; teaching needs {FEWEST}")
    places = np.unique(np.linspace(0, len(others) - 1, min(COMPARED, len(others))).astype(int))
    sample, odds = _examples(library, tagger, [others[place] for place in places])
    seen, said = _examples(library, tagger, sorted(answered))
    row = {photo: i for i, photo in enumerate(sorted(answered))}
    teacher, labels, heads = Teacher(sample), tagger.labels, []
    for label, own in answers.items():
        column = labels.index(label)
        yes, no = ([row[photo] for photo, is_so in own.items() if is_so is side] for side in (True, False))
        heads.append(teacher.learn(seen.some(yes), seen.some(no), said[yes, column], odds[:, column]))
    parts = (np.array(part, np.float32) for part in zip(*heads, strict=True))
    counts = {label: [sum(own.values()), len(own) - sum(own.values())] for label, own in answers.items()}
    about = {**fingerprint(tagger.method), "examples": counts}
    taught = tuple(labels.names[labels.index(label)] for label in answers)
    return Heads(taught, about, *parts).to_bytes(labels)


def _examples(
    library: Library, tagger: Tagger, photos: Sequence[int]
) -> tuple[Examples, NDArray[np.float32]]:
    """What photos look like to heads, and the log-odds (N, C) of all labels by their texts."""
    stream, method = tagger.session.features, tagger.method
    rows: list[tuple[NDArray[np.float32], ...]] = []
    for photo in photos:
        ((content,),) = library.rows("SELECT content FROM photos WHERE id = ?", photo)
        if not all(cache.holds(content) for cache in stream.caches):
            raise MlttaError(f"{library.folder} has damaged features: run mltta tag PHOTOS --library again")
        held = {cache.spec: cache.read(content) for cache in stream.caches}
        encoded = stream.encoded([Features(Photo(0, "", None), held)])
        with stream.backbone.engine.scoring():
            found = (*summary(encoded, method.needs), method.branches(encoded)["view"])
        rows.append(tuple(np.asarray(to_numpy(part)[0], np.float32) for part in found))
    whole, windows, odds = (np.array(part) for part in zip(*rows, strict=True))
    return Examples(whole, windows), odds
