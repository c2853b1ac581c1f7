"""A session over the photos of a dataset, local or in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mltta.data import Dataset
from mltta.images.specs import AnySpec
from mltta.methods.base import Method, State
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution
from mltta.session.features import Counts
from mltta.session.prepare import Photo
from mltta.session.question import Question
from mltta.session.scorer import Scored
from mltta.session.session import Answers, Pass, Session


@dataclass(frozen=True)
class Measured:
    """Completed photos: their number, each method's records, and feature counts."""

    photos: int
    #: by method index
    records: dict[int, list[Scored]]
    counts: Counts = field(default_factory=Counts)


@dataclass
class Measure:
    """A pass over a dataset for several methods; the session is created on first use."""

    question: Question
    dataset: Dataset
    methods: Sequence[Method]
    seed: int = 0
    cache: bool | str | Path = False
    execution: Execution = field(default_factory=Execution)
    #: (methods, images) which method scores which photo
    wanted: NDArray[np.bool_] | None = None
    #: initial states of online methods
    states: Sequence[State | None] = ()

    @cached_property
    def session(self) -> Session:
        cache, fetch = None if self.cache is False else self._cache, _Photos(self.dataset)
        return Session(
            self.question, self.methods, seed=self.seed, execution=self.execution, cache=cache, fetch=fetch
        )

    @cached_property
    def run(self) -> Pass:
        return self.session.start(self.states, self.wanted)

    def __call__(self, places: Iterable[int]) -> Iterator[Measured]:
        """Yield batches of photos, by index in the dataset, in order."""
        return (Measured(len(batch), self._records(batch)) for batch in self.run.batches(places))

    def at_end(self) -> Measured:
        """Results of transductive methods, after all photos."""
        return Measured(0, self._records(self.run.at_end()))

    def _records(self, answers: Iterable[Answers]) -> dict[int, list[Scored]]:
        found: dict[int, list[Scored]] = {}
        for said in answers:
            for number, scored in enumerate(said):
                if scored is not None:
                    bare = replace(scored, photo=replace(scored.photo, source=None))
                    found.setdefault(number, []).append(bare)
        return found

    def _cache(self, spec: AnySpec) -> FeatureCache:
        folder = None if isinstance(self.cache, bool) else Path(self.cache)
        return FeatureCache(self.question.backbone, spec, self.seed, folder)


class _Photos:
    """Photo by dataset index; sent to each worker once."""

    def __init__(self, dataset: Dataset):
        self.ids: Sequence[str] = dataset.ids
        self.images: Sequence[Any] = dataset.images

    def __call__(self, index: int) -> Photo:
        return Photo(index, self.ids[index], self.images[index], self.ids[index])


#: distributes photos to workers and yields their results, in any order
Spread: TypeAlias = Callable[[Measure, Sequence[int]], Iterator[Measured]]
