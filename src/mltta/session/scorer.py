"""From features to scores: a method, episodic or a fold over the stream, and the decision that follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from mltta.decision import Decision
from mltta.errors import ImageError
from mltta.methods.base import Method, OnlineMethod, State, TransductiveMethod
from mltta.session.features import Features, FeatureStream
from mltta.session.prepare import Photo
from mltta.session.question import Question


@dataclass(frozen=True)
class Scored:
    """What a method says of one photo, or why it says nothing."""

    photo: Photo
    branches: NDArray[np.float32] | None = None  # (branches, C)
    scores: NDArray[np.float32] | None = None  # (C,) from 0 to 1
    shown: NDArray[np.bool_] | None = None  # (C,)
    #: milliseconds beyond encoding
    ms: float = 0.0
    error: str | None = None
    where: NDArray[np.float32] | None = None  # (C, H, W) where each label was found, if asked for
    #: by label shown, the captions that speak for it and their similarity, if asked for
    captions: Mapping[int, Sequence[tuple[str, float]]] = field(default_factory=dict)


#: branches and votes of some photos (B, branches [+ 1], C), and the row of one of them; or why there are none
_Said = tuple[Callable[[], NDArray[np.float32]], int] | str


class Scorer:
    """One method on one stream of photos; an online method's memory belongs to it and to nobody else."""

    def __init__(
        self,
        method: Method,
        question: Question,
        stream: FeatureStream,
        decision: Decision,
        state: State | None = None,
        where: bool = False,
        explain: bool = False,
    ):
        """Args:
        state: what an online method remembers from before; by default nothing.
        where: also ask the method where labels were found.
        explain: also ask which captions speak for the labels shown.
        """
        self.method, self.question, self.stream, self.decision = method, question, stream, decision
        self.where, self.explain, self.state = where, explain, state
        self.engine = stream.backbone.engine
        if isinstance(method, OnlineMethod) and state is None:
            self.state = method.start()
        #: of a transductive method: the photos seen so far, the row kept of each, and the milliseconds they took
        self._seen: list[tuple[Features, Any]] = []
        self._ms: list[Callable[[], float]] = []
        self._at_once = self.engine.batches(stream.execution.batch_size)

    def error(self, item: Features) -> str | None:
        """Why this method cannot look at a photo; another method may."""
        needs = self.method.needs
        return next((item.errors[s] for s in item.errors if any(s.covers(need) for need in needs)), None)

    def __call__(self, photos: Sequence[Features]) -> Callable[[], list[Scored]]:
        """Start to score photos; the answer, when called, waits for a GPU. Transductive methods report only errors."""
        good = [item for item in photos if self.error(item) is None]
        with self.engine.scoring():
            self._ask_captions(good)
            stop, found = self.engine.stopwatch(), list[_Said]()
            if isinstance(self.method, TransductiveMethod):
                keep = self.method.keep
                rows = self._map(lambda some: list(keep(self.stream.encoded(some))), good)
                # only the row and the votes of a photo stay in memory
                self._seen += [(replace(x, features={}), row) for x, row in zip(good, rows, strict=True)]
                self._ms.append(stop())
                photos = [item for item in photos if self.error(item) is not None]
            elif isinstance(self.method, OnlineMethod):
                found = [self._step(self.method, item) for item in good]
            else:
                found = self._map(self._together, good)
            ms, said = stop(), iter(found)
            asked = [(item, self.error(item) or next(said)) for item in photos]
        each = lambda: ms() / max(1, len(good))  # noqa: E731
        return lambda: [self._scored(item, one, each) for item, one in asked]

    def at_end(self) -> list[Scored]:
        """What a transductive method says of all photos it has seen; other methods have nothing left to say."""
        if not isinstance(self.method, TransductiveMethod) or not self._seen:
            return []
        photos = [item for item, _ in self._seen]
        with self.engine.scoring():
            stop = self.engine.stopwatch()
            rows = [row for _, row in self._seen]
            said = self._said(photos, self.method.finish(array_namespace(*rows).stack(rows)))
            watches = [*self._ms, stop()]
        total = sum(ms() for ms in watches) / len(photos)
        return [self._scored(item, one, lambda: total) for item, one in zip(photos, said, strict=True)]

    def _map(self, work: Callable[[Sequence[Features]], list[Any]], photos: Sequence[Features]) -> list[Any]:
        return self.engine.map(work, photos, self._at_once)

    def _ask_captions(self, photos: Sequence[Features]) -> None:
        """Count votes once for the methods that look at the same views, outside of any method's time."""
        if self.method.emits == "odds":
            return
        spec, rule = self.method.needs[0], self.decision.rule
        new = [item for item in photos if spec not in item.votes]

        def count(some: Sequence[Features]) -> list[Any]:
            views = self.stream.encoded(some).features(spec)
            return list(self.question.votes(views, rule.captions_per_view))

        for item, votes in zip(new, self._map(count, new), strict=True):
            item.votes[spec] = votes

    def _together(self, photos: Sequence[Features]) -> list[_Said]:
        try:
            branches = self.method.branches(self.stream.encoded(photos))
        except ImageError as error:  # one of them cannot be looked at again
            return [str(error)] if len(photos) == 1 else [self._together([item])[0] for item in photos]
        return self._said(photos, branches)

    def _step(self, method: OnlineMethod, item: Features) -> _Said:
        assert self.state is not None
        try:
            branches, self.state = method.fold(self.state, self.stream.encoded([item]))
        except ImageError as error:
            return str(error)
        return self._said([item], branches)[0]

    def _said(self, photos: Sequence[Features], branches: Mapping[str, Any]) -> list[_Said]:
        """Start to bring branches and votes to the CPU, together."""
        parts = [branches[name] for name in self.method.branch_names]
        xp = array_namespace(*parts)
        if self.method.emits != "odds":
            parts.append(xp.stack([item.votes[self.method.needs[0]] for item in photos]))
        found = self.engine.to_cpu(xp.stack([xp.astype(part, xp.float32) for part in parts], axis=1))
        return [(found, row) for row in range(len(photos))]

    def _scored(self, item: Features, said: _Said, ms: Callable[[], float]) -> Scored:
        if isinstance(said, str):
            return Scored(item.photo, error=said)
        found, row = said
        values = found()[row]  # (branches [+ 1], C)
        branches, votes = values, None
        if self.method.emits != "odds":
            branches, votes = values[:-1], values[-1:]
        decision = item.photo.decision or self.decision
        scores = decision.scores(branches[None], votes, self.method.emits)
        if not (np.isfinite(values).all() and np.isfinite(scores).all()):
            return Scored(item.photo, error=f"{item.photo.id}: its scores are not numbers, so it has none")
        shown = decision.shown(scores)[0]
        where = self.method.where(self.stream.encoded([item])) if self.where else None
        captions = self._speakers(item, shown) if self.explain else {}
        grid = None if where is None else self.engine.to_cpu(where[0])()
        return Scored(item.photo, branches, scores[0], shown, ms(), where=grid, captions=captions)

    def _speakers(self, item: Features, shown: NDArray[np.bool_]) -> dict[int, list[tuple[str, float]]]:
        """By label shown, the captions that name it and are nearest to the photo as a whole."""
        heard = self.question.heard if self.method.emits != "odds" else self.method.problem.captions
        if heard is None:
            return {}
        whole = self.stream.encoded([item]).features(self.method.needs[0])[0, 0]
        return {int(label): heard.speakers(whole, int(label)) for label in np.flatnonzero(shown)}
