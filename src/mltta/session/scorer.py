"""From features to scores: a method, episodic or online, followed by the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from mltta.errors import ImageError
from mltta.methods.base import Method, OnlineMethod, State, TransductiveMethod
from mltta.session.features import Features
from mltta.session.prepare import Photo

if TYPE_CHECKING:
    from mltta.session.session import Session


@dataclass(frozen=True)
class Scored:
    """A method's result for one photo, or an error."""

    photo: Photo
    branches: NDArray[np.float32] | None = None  # (branches, C)
    scores: NDArray[np.float32] | None = None  # (C,) from 0 to 1
    shown: NDArray[np.bool_] | None = None  # (C,)
    keywords: NDArray[np.bool_] | None = None  # (C,) of those shown, the ones to write as keywords
    #: milliseconds per photo, without encoding
    ms: float = 0.0
    error: str | None = None
    where: NDArray[np.float32] | None = None  # (C, H, W) heat maps of the labels, if requested
    #: for each label shown, the captions that support it and their similarity, if requested
    captions: Mapping[int, Sequence[tuple[str, float]]] = field(default_factory=dict)


#: branches and votes of some photos (B, branches [+ 1], C), and the row of one of them; or an error
_Said = tuple[Callable[[], NDArray[np.float32]], int] | str


class Scorer:
    """One method on one stream of photos; owns the state of an online method."""

    def __init__(self, session: Session, method: Method, state: State | None = None):
        """Args:
        session: the label list, the features of the photos, the decision and further options.
        state: initial state of an online method (default: empty).
        """
        self.session, self.method, self.state = session, method, state
        self.question, self.stream = session.question, session.features
        self.engine = self.stream.backbone.engine
        if isinstance(method, OnlineMethod) and state is None:
            self.state = method.start()
        #: for a transductive method: the photos so far, the row kept for each, and the time in milliseconds
        self._seen: list[tuple[Features, Any]] = []
        self._ms: list[Callable[[], float]] = []
        self._at_once = self.engine.batches(self.stream.execution.batch_size)

    def error(self, item: Features) -> str | None:
        """Why this method cannot score a photo; other methods may still be able to."""
        needs = self.method.needs
        return next((item.errors[s] for s in item.errors if any(s.covers(need) for need in needs)), None)

    def __call__(self, photos: Sequence[Features]) -> Callable[[], list[Scored]]:
        """Start scoring photos; calling the result waits for the GPU. Transductive methods report only errors here."""
        good = [item for item in photos if self.error(item) is None]
        with self.engine.scoring():
            self._ask_captions(good)
            stop, found = self.engine.stopwatch(), list[_Said]()
            if isinstance(self.method, TransductiveMethod):
                keep = self.method.keep
                rows = self._map(lambda some: list(keep(self.stream.encoded(some))), good)
                # keep only each photo's row and votes in memory
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
        """A transductive method's results for all photos; empty for other methods."""
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
        found: list[Any] = self.engine.map(work, photos, self._at_once)
        return found

    def _ask_captions(self, photos: Sequence[Features]) -> None:
        """Compute votes once for all methods with the same views, outside the timing of any method."""
        if self.method.emits == "odds":
            return
        spec, rule = self.method.needs[0], self.session.decision.rule
        new = [item for item in photos if spec not in item.votes]

        def count(some: Sequence[Features]) -> list[Any]:
            views = self.stream.encoded(some).features(spec)
            return list(self.question.votes(views, rule.captions_per_view))

        for item, votes in zip(new, self._map(count, new), strict=True):
            item.votes[spec] = votes

    def _together(self, photos: Sequence[Features]) -> list[_Said]:
        try:
            branches = self.method.branches(self.stream.encoded(photos))
        except ImageError as error:  # one of them can no longer be read
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
        """Start copying branches and votes to the CPU, together."""
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
        decision = item.photo.decision or self.session.decision
        scores = decision.scores(branches[None], votes, self.method.emits)
        if not (np.isfinite(values).all() and np.isfinite(scores).all()):
            return Scored(item.photo, error=f"{item.photo.id}: its scores are not finite numbers")
        tree = self.question.branches
        shown, keywords = decision.shown(scores, tree)[0], decision.keywords(scores, tree)[0]
        where = self.method.where(self.stream.encoded([item])) if self.session.where else None
        captions = self._speakers(item, shown) if self.session.explain else {}
        grid = None if where is None else self.engine.to_cpu(where[0])()
        return Scored(item.photo, branches, scores[0], shown, keywords, ms(), where=grid, captions=captions)

    def _speakers(self, item: Features, shown: NDArray[np.bool_]) -> dict[int, list[tuple[str, float]]]:
        """For each label shown, the captions that name it and are most similar to the clean view."""
        method = self.method
        if method.emits == "odds":
            heard, place = method.spoken_of
        else:
            heard, place = self.question.heard, range(len(self.question.labels))
        if heard is None:
            return {}
        whole = self.stream.encoded([item]).features(self.method.needs[0])[0, 0]
        return {label: heard.speakers(whole, place[label]) for label in np.flatnonzero(shown).tolist()}
