"""Captions by rule, without a language model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mltta.captions.compose import Composer
from mltta.captions.generate.engines import Answer, Request
from mltta.labels import LabelSet


class ComposerEngine:
    """Puts the keywords, at most four of them, into a plain sentence."""

    def __init__(self, labels: LabelSet) -> None:
        self._compose = Composer(labels)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The rules alone."""
        return {"engine": "composer", "model": None}

    def answers(self, requests: Sequence[Request]) -> Iterator[Answer]:
        """Write the sentences in order."""
        for request in requests:
            yield Answer(request.n, self._compose(request.keywords, random.Random(request.seed)))
