"""Sampling of caption requests: labels drawn uniformly as in the paper, or by co-occurrence in photos. Also the
interface of caption engines, and the engine that needs no model."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mltta.captions.compose import Composer
from mltta.data.dataset import Dataset
from mltta.errors import ConfigError, LabelError
from mltta.labels import LabelSet
from mltta.storage import atomic
from mltta.storage.reading import LABELS, UNREADABLE, explain, read_text

log = logging.getLogger("mltta")
#: the paper's words (appendix, text description base construction)
PROMPT = (
    "Make a sentence to describe a photo. Requirements: Each sentence should be less than 15 words "
    "and include keywords: {}"
)
MOST_LABELS = 5


@dataclass(frozen=True)
class Request:
    """A request for one sentence, fully determined by the run's seed and its number."""

    n: int
    keywords: tuple[str, ...]
    prompt: str
    seed: int


@dataclass(frozen=True)
class Answer:
    """The unmodified answer to request n, and the tokens used."""

    n: int
    text: str
    prompt_tokens: int = 0
    answer_tokens: int = 0


class Cooccurrence:
    """How often labels occur, individually and together.

    >>> Cooccurrence.of_pairs(LabelSet.of("dog, cat"), [("dog", "cat", 3)]).counts.tolist()
    [[0.0, 3.0], [3.0, 0.0]]
    """

    def __init__(self, labels: LabelSet, counts: NDArray[Any]) -> None:
        """Args:
        counts: (C, C), how often the row's label occurs together with the column's; the diagonal counts how often it
            occurs at all. A 0 on the diagonal is replaced by the sum of the row.
        """
        counts = np.asarray(counts, dtype=np.float64)
        if counts.shape != (len(labels), len(labels)):
            raise ConfigError(f"co-occurrence counts have shape {counts.shape} for {len(labels)} labels")
        if not np.isfinite(counts).all() or (counts < 0).any() or not counts.any():
            raise ConfigError("co-occurrence counts must be at least 0, and not all 0 for these labels")
        self.labels, self.counts = labels, counts
        self.own = np.where(counts.diagonal() > 0, counts.diagonal(), counts.sum(axis=1))
        together = counts * (1 - np.eye(len(labels)))
        self.given = together / np.where(self.own > 0, self.own, 1)[:, None]  # [c, l]: fraction of c's with l
        if unseen := [name for name, own in zip(labels.names, self.own, strict=True) if own == 0]:
            log.warning("never sampled, because their counts are 0: %s", ", ".join(unseen))

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> Cooccurrence:
        """Count over the images of a dataset."""
        present = (dataset.targets == 1).astype(np.float64)  # (N, C)
        return cls(dataset.labels, present.T @ present)

    @classmethod
    def of_pairs(cls, labels: LabelSet, pairs: Iterable[tuple[str, str, float]]) -> Cooccurrence:
        """Count from pairs of labels; a label paired with itself counts how often it occurs at all."""
        counts = np.zeros((len(labels), len(labels)))
        for one, other, count in pairs:
            with contextlib.suppress(LabelError):
                a, b = labels.index(one), labels.index(other)
                counts[a, b] += count
                if a != b:
                    counts[b, a] += count
        return cls(labels, counts)

    @classmethod
    def load(cls, path: str | Path, labels: LabelSet) -> Cooccurrence:
        """Read ``{"labels": […], "counts": [[…]]}``, or pairs: JSON ``[["dog", "cat", 12], …]`` or CSV ``dog,cat,12``.

        Labels of the file that are not in the set are ignored.
        """
        path = Path(path)
        try:
            text = read_text(path, LABELS, ConfigError)
            if path.suffix.casefold() == ".csv":
                rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
                with contextlib.suppress(ValueError):
                    float(rows[0][-1])
                    rows = [[], *rows]  # no header
                return cls.of_pairs(labels, [(a.strip(), b.strip(), float(n)) for a, b, n in rows[1:]])
            held = json.loads(text)
            if isinstance(held, dict):
                return cls(labels, _matched(labels, held["labels"], np.asarray(held["counts"], np.float64)))
            return cls.of_pairs(labels, [(str(a), str(b), float(count)) for a, b, count in held])
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except UNREADABLE as error:
            raise ConfigError(
                f"{path} contains no co-occurrence counts ({explain(error)}). Expected JSON "
                '{"labels": ["dog", …], "counts": [[9, …], …]}, or pairs as JSON [["dog", "cat", 12], …] or CSV.'
            ) from error

    def save(self, path: str | Path) -> None:
        """Save the counts as JSON for `load`."""
        held = {"labels": list(self.labels.names), "counts": self.counts.tolist()}
        atomic.write(Path(path), (json.dumps(held) + "\n").encode())

    def draw(self, size: int, rng: random.Random) -> list[int]:
        """Draw labels: the first by frequency, each next by its mean frequency together with those drawn.

        Fewer are drawn if no label co-occurs with them.
        """
        drawn: list[int] = []
        weights = self.own
        while len(drawn) < size and weights.any():
            drawn += rng.choices(range(len(weights)), weights.tolist())
            weights = self.given[drawn].mean(axis=0)
            weights[drawn] = 0
        return drawn


class Sampler:
    """Creates request n of a run, determined by the labels, the seed and n."""

    def __init__(self, labels: LabelSet, seed: int = 0, cooccurrence: Cooccurrence | None = None) -> None:
        self._texts, self._seed, self._cooccurrence = labels.texts, seed, cooccurrence

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that requests depend on, besides the labels."""
        drawn = "uniform"
        if self._cooccurrence is not None:
            counts = self._cooccurrence.counts.tobytes()
            drawn = f"co-occurrence {hashlib.blake2b(counts, digest_size=8).hexdigest()}"
        return {"seed": self._seed, "prompt": PROMPT, "sampling": drawn}

    def __call__(self, n: int) -> Request:
        key = hashlib.blake2b(f"{self._seed}\0{n}".encode(), digest_size=16).digest()
        rng = random.Random(int.from_bytes(key, "big"))
        size = rng.randint(1, min(MOST_LABELS, len(self._texts)))
        together = self._cooccurrence
        drawn = together.draw(size, rng) if together else rng.sample(range(len(self._texts)), size)
        keywords = tuple(self._texts[i] for i in drawn)
        return Request(n, keywords, PROMPT.format(", ".join(keywords)), rng.getrandbits(31))


def _matched(labels: LabelSet, names: list[str], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """A file's counts, in the order of the label set."""
    if counts.shape != (len(names), len(names)):
        raise ValueError(f"{len(names)} labels, but counts have shape {counts.shape}")
    places: dict[int, int] = {}
    for row, name in enumerate(names):
        with contextlib.suppress(LabelError):
            places[row] = labels.index(name)
    matched, rows, at = np.zeros((len(labels), len(labels))), list(places), list(places.values())
    matched[np.ix_(at, at)] = counts[np.ix_(rows, rows)]
    return matched


class CaptionEngine(Protocol):
    """Answers requests."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that answers depend on; a run cannot be resumed by an engine with another identity."""

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Give one answer per request, in any order."""


class ComposerEngine:
    """Generates a plain sentence with up to four of the keywords from templates."""

    identity: Mapping[str, Any] = {"engine": "composer", "model": None}

    def __init__(self, labels: LabelSet) -> None:
        self._compose = Composer(labels)

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Yield the sentences in order."""
        return (Answer(r.n, self._compose(r.keywords, random.Random(r.seed))) for r in requests)
