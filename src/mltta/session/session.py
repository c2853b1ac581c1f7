"""The engine: photos in, scores of every method out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.decision import Decision
from mltta.images.specs import AnySpec
from mltta.methods.base import Method, State
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution, overlapped
from mltta.session.features import Features, FeatureStream
from mltta.session.prepare import Photo, rendering
from mltta.session.question import Question
from mltta.session.scorer import Scored, Scorer

#: results for a photo, one per method; None if the method was not requested or answers at the end
Answers = tuple[Scored | None, ...]


class Session:
    """Scores photos against one label list, with one or more methods that share the encoding.

    Streams are independent: every call of ``start`` begins with a fresh state for online methods.
    """

    def __init__(
        self,
        question: Question,
        methods: Sequence[Method],
        *,
        decision: Decision | None = None,
        seed: int = 0,
        execution: Execution | None = None,
        cache: Callable[[AnySpec], FeatureCache] | None = None,
        fetch: Callable[[Any], Photo] | None = None,
        where: bool = False,
        explain: bool = False,
    ):
        """Args:
        decision: which labels are shown.
        cache: creates the feature cache for a spec; None disables caching.
        fetch: returns the photo for a key; by default keys are photos.
        where: also compute heat maps, if the method supports them.
        explain: also return the captions that support the labels shown.
        """
        self.question, self.methods, self.decision = question, list(methods), decision or Decision()
        self.where, self.explain = where, explain
        self.features = FeatureStream(
            question.backbone,
            (spec for method in methods for spec in method.needs),
            seed=seed,
            execution=execution,
            cache=cache,
            fetch=fetch,
        )

    def stream(self, keys: Iterable[Any]) -> Iterator[Answers]:
        """Results of all methods for each photo, in order; photos are read only when needed."""
        for batch in self.start().batches(keys):
            yield from batch

    def start(self, states: Sequence[State | None] = (), wanted: NDArray[np.bool_] | None = None) -> Pass:
        """One pass over photos.

        Args:
            states: initial states of online methods, one per method.
            wanted: (methods, photos) which method scores which photo (default: all).
        """
        return Pass(self, states, wanted)

    def about(self, method: Method) -> dict[str, Any]:
        """Everything that a result depends on, except the image, as plain data: different settings never mix."""
        decision = self.decision
        return {
            **self.question.about(method),
            "presence": asdict(decision.rule),
            "threshold": decision.threshold,
            "top-k": decision.top_k,
            "where": self.where,
            "seed": self.features.seed,
            "rendering": sorted({rendering(self.question.backbone, spec) for spec in method.needs}),
        }


class Pass:
    """One pass over photos, with the state of online methods."""

    def __init__(self, session: Session, states: Sequence[State | None], wanted: NDArray[np.bool_] | None):
        self.session, self.wanted = session, wanted
        remembered = states or [None] * len(session.methods)
        self.scorers = [Scorer(session, *one) for one in zip(session.methods, remembered, strict=True)]

    def batches(self, keys: Iterable[Any]) -> Iterator[list[Answers]]:
        """Results batch by batch, without waiting for the GPU in between."""
        behind = self.session.question.backbone.engine.waits
        return overlapped(self.session.features(keys), self._begin, behind)

    def at_end(self) -> Iterator[Answers]:
        """Results of transductive methods, after all photos."""
        for number, scorer in enumerate(self.scorers):
            for scored in scorer.at_end():
                yield tuple(scored if n == number else None for n in range(len(self.scorers)))

    def _begin(self, photos: list[Features]) -> Callable[[], list[Answers]]:
        asked = [[item for item in photos if self._asks(number, item)] for number in range(len(self.scorers))]
        finish = [scorer(own) for scorer, own in zip(self.scorers, asked, strict=True)]

        def answers() -> list[Answers]:
            said = [{id(one.photo): one for one in done()} for done in finish]
            return [tuple(own.get(id(item.photo)) for own in said) for item in photos]

        return answers

    def _asks(self, number: int, item: Features) -> bool:
        return self.wanted is None or bool(self.wanted[number, item.photo.index])
