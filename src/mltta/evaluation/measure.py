"""Methods on the photos of a dataset, one encoding for all of them: here, or in a worker that it is sent to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mltta.data import Dataset
from mltta.decision import Decision
from mltta.evaluation.recipes import Setting
from mltta.evaluation.rows import Record
from mltta.methods.base import Method, State
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution
from mltta.session.features import Counts, Features, Pipeline
from mltta.session.overlap import overlapped
from mltta.session.prepare import Photo
from mltta.session.score import Begun, Scored, Scorer

#: what was scored, by the number of the method
Answers: TypeAlias = list[tuple[int, list[Record]]]


@dataclass(frozen=True)
class Measured:
    """Some photos that are done: how many, the records of each method that wanted them, where features came from."""

    photos: int
    answers: Answers
    counts: Counts = field(default_factory=Counts)


@dataclass
class Measure:
    """A pass over photos for several methods; what it works with is made where it is first used."""

    setting: Setting
    decision: Decision
    methods: Sequence[Method]
    #: (methods, images) which method wants which photo
    wanted: NDArray[np.bool_]
    cache: bool | str | Path = False
    execution: Execution = field(default_factory=Execution)
    #: what online methods remember
    states: Sequence[State | None] = ()

    @cached_property
    def pipeline(self) -> Pipeline:
        backbone, seed = self.setting.backbone, self.setting.seed
        folder = None if isinstance(self.cache, bool) else Path(self.cache)
        return Pipeline(
            backbone,
            (spec for method in self.methods for spec in method.needs),
            seed=seed,
            execution=self.execution,
            cache=None if self.cache is False else lambda spec: FeatureCache(backbone, spec, seed, folder),
            fetch=_Photos(self.setting.dataset),
        )

    @cached_property
    def scorers(self) -> list[Scorer]:
        states = self.states or [None] * len(self.methods)
        return [
            Scorer(method, self.decision, self.pipeline, state)
            for method, state in zip(self.methods, states, strict=True)
        ]

    def __call__(self, places: Iterable[int]) -> Iterator[Measured]:
        """Batches of photos, by their places in the dataset, in order; a GPU is not waited for in between."""

        def begin(photos: list[Features]) -> tuple[int, list[tuple[int, Begun]]]:
            begun = []
            for number, scorer in enumerate(self.scorers):
                own = [item for item in photos if self.wanted[number, item.photo.index]]
                if own:
                    begun.append((number, scorer.begin(own)))
            return len(photos), begun

        def finish(begun: tuple[int, list[tuple[int, Begun]]]) -> Measured:
            answers = [(number, self.records(self.scorers[number].finish(some))) for number, some in begun[1]]
            return Measured(begun[0], answers)

        behind = self.setting.backbone.device.type != "cpu"
        yield from overlapped(self.pipeline(places), begin, finish, behind)

    def at_end(self) -> Answers:
        """What transductive methods say when they have seen all photos."""
        return [(number, self.records(scorer.at_end())) for number, scorer in enumerate(self.scorers)]

    def records(self, scored: Sequence[Scored]) -> list[Record]:
        """Outcomes as they are kept, called by the ids of the dataset."""
        return [_record(one, self.setting.dataset.ids[one.photo.index]) for one in scored]


#: takes photos to others that measure them, and brings back what they say, in any order
Spread: TypeAlias = Callable[[Measure, Sequence[int]], Iterator[Measured]]


def _record(scored: Scored, id: str) -> Record:
    if scored.branches is None or scored.score is None or scored.present is None:
        return Record(scored.photo.index, id, error=scored.error)
    shown = tuple(scored.present.nonzero().flatten().tolist())
    return Record(scored.photo.index, id, scored.branches.numpy(), scored.score.numpy(), shown, scored.ms)


class _Photos:
    """The photo at a place of a dataset; sent to a worker once."""

    def __init__(self, dataset: Dataset):
        self.ids: Sequence[str] = dataset.ids
        self.images: Sequence[Any] = dataset.images

    def __call__(self, index: int) -> Photo:
        return Photo(index, self.ids[index], self.images[index], self.ids[index])
