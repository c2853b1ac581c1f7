"""A session over the photos of a dataset: here, or in a worker that it is sent to."""

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
    """Some finished photos: how many, the records of each method that wanted them, where features came from."""

    photos: int
    #: by the number of the method
    records: dict[int, list[Scored]]
    counts: Counts = field(default_factory=Counts)


@dataclass
class Measure:
    """A pass over a dataset for several methods; its session is made where it is first used."""

    question: Question
    dataset: Dataset
    methods: Sequence[Method]
    seed: int = 0
    cache: bool | str | Path = False
    execution: Execution = field(default_factory=Execution)
    #: (methods, images) which method wants which photo
    wanted: NDArray[np.bool_] | None = None
    #: what online methods remember
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
        """Batches of photos, by their places in the dataset, in order."""
        return (Measured(len(batch), self._records(batch)) for batch in self.run.batches(places))

    def at_end(self) -> Measured:
        """What transductive methods say once they have seen all photos."""
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
    """The photo at a place of a dataset; sent to a worker once."""

    def __init__(self, dataset: Dataset):
        self.ids: Sequence[str] = dataset.ids
        self.images: Sequence[Any] = dataset.images

    def __call__(self, index: int) -> Photo:
        return Photo(index, self.ids[index], self.images[index], self.ids[index])


#: sends photos to others that measure them, and brings back what they say, in any order
Spread: TypeAlias = Callable[[Measure, Sequence[int]], Iterator[Measured]]
