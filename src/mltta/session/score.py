"""From features to scores: a method, episodic or a fold over the stream, and the decision that follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from mltta.decision import Decision
from mltta.errors import ImageError
from mltta.methods.base import Method, OnlineMethod, State, TransductiveMethod, branch_probabilities
from mltta.model.threads import gradients_after_fork, side_by_side
from mltta.session.execution import Halving
from mltta.session.features import Features, Pipeline
from mltta.session.overlap import Later, Stopwatch
from mltta.session.prepare import Photo

T = TypeVar("T")


@dataclass(frozen=True)
class Scored:
    """What a method says of one photo, or why it says nothing. Tensors are on the CPU."""

    photo: Photo
    branches: Tensor | None = None  # (branches, C)
    score: Tensor | None = None  # (C,) how sure the decision is of each label
    present: Tensor | None = None  # (C,) which labels the photo shows
    #: milliseconds beyond encoding
    ms: float = 0.0
    error: str | None = None
    where: Tensor | None = None  # (C, H, W) where each label was found, if that was asked for
    #: by label present, the captions that spoke for it and how near they are, if that was asked for
    captions: Mapping[int, Sequence[tuple[str, float]]] = field(default_factory=dict)


#: branches, score and presence of some photos (B, branches + 2, C) and the row of one, or why there are none
Answer = tuple[Later, int] | str


@dataclass(frozen=True)
class Begun:
    """Photos that a method was asked about."""

    photos: Sequence[Features]
    answers: Sequence[Answer]
    watch: Stopwatch


class Scorer:
    """One method on one stream of photos; an online method's memory belongs to it, and to nobody else."""

    def __init__(
        self,
        method: Method,
        decision: Decision,
        pipeline: Pipeline,
        state: State | None = None,
        where: bool = False,
        explain: bool = False,
    ):
        """Args:
        state: what an online method remembers from before; by default nothing.
        where: ask the method where labels were found, too.
        explain: ask which captions spoke for the labels present, too.
        """
        self.where, self.explain = where, explain
        self.method, self.decision, self.pipeline = method, decision, pipeline
        self.state = state
        if isinstance(method, OnlineMethod) and state is None:
            self.state = method.start()
        #: of a transductive method: the photos seen so far and the row that is kept of each
        self._seen: list[tuple[Features, Tensor]] = []
        self._watches: list[Stopwatch] = []
        self._at_once = Halving(pipeline.execution.images_at_once(pipeline.backbone))
        on_cpu = pipeline.backbone.device.type == "cpu"
        #: on a CPU each photo is scored alone, by one thread: its bits never depend on what is beside it
        self._pool: ThreadPoolExecutor | None = side_by_side() if on_cpu else None

    def error(self, item: Features) -> str | None:
        """Why this method cannot look at a photo; another may."""
        needs = self.method.needs
        return next((item.errors[s] for s in item.errors if any(s.covers(need) for need in needs)), None)

    @torch.inference_mode(False)  # methods take gradients, whatever the caller is doing
    def __call__(self, photos: Sequence[Features]) -> list[Scored]:
        """Score some photos, in their order; now a transductive method speaks only of those that fail."""
        return self.finish(self.begin(photos))

    @torch.inference_mode(False)
    def begin(self, photos: Sequence[Features]) -> Begun:
        """Ask the method about some photos; a GPU's answers are not waited for."""
        good = [item for item in photos if self.error(item) is None]
        self._ask_captions(good)
        watch = Stopwatch(self.pipeline.backbone.device)
        if isinstance(self.method, TransductiveMethod):
            rows = self._spread(self._kept, good)
            watch.stop()
            self._watches.append(watch)
            # only the row and the votes of a photo stay
            self._seen += [(replace(item, features={}), row) for item, row in zip(good, rows, strict=True)]
            failed = [(item, why) for item in photos if (why := self.error(item)) is not None]
            return Begun([item for item, _ in failed], [why for _, why in failed], watch)
        with gradients_after_fork():
            answers = iter(self._answers(good))
        watch.stop()
        return Begun(photos, [self.error(item) or next(answers) for item in photos], watch)

    @torch.inference_mode(False)
    def finish(self, begun: Begun) -> list[Scored]:
        """What the method has answered."""
        good = sum(not isinstance(answer, str) for answer in begun.answers)
        ms = begun.watch.ms() / max(1, good)
        return [
            self._scored(item, answer, ms) for item, answer in zip(begun.photos, begun.answers, strict=True)
        ]

    @torch.inference_mode(False)
    def at_end(self) -> list[Scored]:
        """What a transductive method says of all photos that it has seen; of any other method nothing is left."""
        if not isinstance(self.method, TransductiveMethod) or not self._seen:
            return []
        watch = Stopwatch(self.pipeline.backbone.device)
        photos = [item for item, _ in self._seen]
        branches = self.method.finish(torch.stack([row for _, row in self._seen]))
        answers = self._decided(photos, branches)
        watch.stop()
        ms = sum(one.ms() for one in (*self._watches, watch)) / len(photos)
        return [self._scored(item, answer, ms) for item, answer in zip(photos, answers, strict=True)]

    def _kept(self, photos: Sequence[Features]) -> list[Tensor]:
        assert isinstance(self.method, TransductiveMethod)
        return list(self.method.keep(self.pipeline.encoded(photos)))

    def _ask_captions(self, photos: Sequence[Features]) -> None:
        """Count votes once for the methods that look at the same views, and outside of any method's time."""
        if self.method.emits == "odds":
            return
        spec = self.method.needs[0]
        new = [item for item in photos if spec not in item.votes]

        def count(some: Sequence[Features]) -> list[Tensor]:
            return list(self.decision.votes(self.pipeline.encoded(some).features(spec)))

        for item, votes in zip(new, self._spread(count, new), strict=True):
            item.votes[spec] = votes

    def _answers(self, photos: Sequence[Features]) -> list[Answer]:
        if isinstance(self.method, OnlineMethod):
            return [self._step(self.method, item) for item in photos]
        return self._spread(self._together, photos)

    def _spread(self, work: Callable[[Sequence[Features]], list[T]], photos: Sequence[Features]) -> list[T]:
        """One by one on a CPU, side by side; together on a GPU, as many as fit."""
        if self._pool is not None:
            return list(self._pool.map(lambda item: work([item])[0], photos))
        return self._at_once(work, photos)

    def _together(self, photos: Sequence[Features]) -> list[Answer]:
        try:
            branches = self.method.branches(self.pipeline.encoded(photos))
        except ImageError as error:  # one of them cannot be looked at again
            return [str(error)] if len(photos) == 1 else [self._together([item])[0] for item in photos]
        return self._decided(photos, branches)

    def _step(self, method: OnlineMethod, item: Features) -> Answer:
        assert self.state is not None
        try:
            branches, self.state = method.fold(self.state, self.pipeline.encoded([item]))
        except ImageError as error:
            return str(error)
        return self._decided([item], branches)[0]

    def _decided(self, photos: Sequence[Features], branches: Mapping[str, Tensor]) -> list[Answer]:
        stacked = torch.stack([branches[name] for name in self.method.branch_names], dim=1).float()
        if self.method.emits == "odds":
            score, present = self.decision.of_odds(stacked.mean(dim=1))
        else:
            votes = torch.stack([item.votes[self.method.needs[0]] for item in photos])
            score, present = self.decision(branch_probabilities(stacked, self.method.emits), votes)
        found = Later(torch.cat([stacked, score[:, None], present[:, None].to(score)], dim=1))
        return [(found, row) for row in range(len(photos))]

    def _scored(self, item: Features, answer: Answer, ms: float) -> Scored:
        if isinstance(answer, str):
            return Scored(item.photo, error=answer)
        found, row = answer
        values = found.get()[row]
        branches, score, present = values[:-2], values[-2], values[-1] > 0
        if not values.isfinite().all():
            return Scored(item.photo, error=f"{item.photo.id}: its scores are not numbers, so it has none")
        where = self.method.where(self.pipeline.encoded([item])) if self.where else None
        return Scored(
            item.photo,
            branches,
            score,
            present,
            ms,
            where=None if where is None else where[0].cpu(),
            captions=self._speakers(item, present) if self.explain else {},
        )

    def _speakers(self, item: Features, present: Tensor) -> dict[int, list[tuple[str, float]]]:
        """By label present, the captions that name it and are nearest to the photo as a whole."""
        heard = self.decision.captions or self.method.problem.captions
        if heard is None:
            return {}
        whole = self.pipeline.encoded([item]).features(self.method.needs[0])[0, 0]
        return {label: heard.speakers(whole, label) for label in present.nonzero()[:, 0].tolist()}
