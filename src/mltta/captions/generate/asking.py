"""Who writes the captions: requests, answers, the interface of an engine, and the engine that needs no model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mltta.captions.compose import Composer
from mltta.labels import LabelSet


@dataclass(frozen=True)
class Request:
    """One sentence asked for; everything in it follows from the run's seed and its number."""

    n: int
    keywords: tuple[str, ...]
    prompt: str
    seed: int


@dataclass(frozen=True)
class Answer:
    """The answer to request n, unchanged, and the tokens it took."""

    n: int
    text: str
    prompt_tokens: int = 0
    answer_tokens: int = 0


class CaptionEngine(Protocol):
    """Answers requests."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the answers depend on; a run is not resumed by an engine with another identity."""

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Give one answer per request, in any order."""


class ComposerEngine:
    """Composes a plain sentence of the keywords, at most four of them, by template."""

    identity: Mapping[str, Any] = {"engine": "composer", "model": None}

    def __init__(self, labels: LabelSet) -> None:
        self._compose = Composer(labels)

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Write the sentences in order."""
        for request in requests:
            yield Answer(request.n, self._compose(request.keywords, random.Random(request.seed)))
