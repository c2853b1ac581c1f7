"""From features to records: every method's scores of some images, and the labels they are said to show."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.decision import Presence
from mltta.errors import ImageError
from mltta.evaluation.recipes import Recipe, Setting
from mltta.evaluation.records import Record, to_record
from mltta.evaluation.results import ResultWriter
from mltta.images.views import ViewSpec
from mltta.methods.base import Method, OnlineMethod, State
from mltta.pipeline.encode import Encoded
from mltta.pipeline.stream import Item, to_encoded

# An online method's memory is kept this often; a kill costs at most so many images, whose features are kept.
IMAGES_A_STATE = 256

#: branches (1, C) of one image and which labels it shows (C,), or why there are none
Answer = tuple[dict[str, Tensor], Tensor] | str


@dataclass
class Run:
    """A recipe under way; an online one carries its memory."""

    recipe: Recipe
    method: Method
    writer: ResultWriter
    state: State | None = None

    def error(self, item: Item) -> str | None:
        """Why this method cannot look at an image; another may."""
        return next((item.errors[spec] for spec in item.errors if _looks_at(self.method, spec)), None)


class Judge:
    """Says which labels an image shows; votes are counted once for the methods that look at the same views."""

    def __init__(self, captions: LabelledCaptions, logit_scale: float):
        self.rule, self.captions, self.logit_scale = Presence(), captions, logit_scale
        self.votes: dict[tuple[ViewSpec, int], Tensor] = {}

    def count(self, spec: ViewSpec, images: Sequence[int], encoded: Encoded) -> None:
        """Keep the captions' votes on some images."""
        counted = self.rule.votes(encoded.features(spec), self.captions, self.logit_scale)
        for image, votes in zip(images, counted, strict=True):
            self.votes[spec, image] = votes

    def __call__(self, method: Method, images: Sequence[int], branches: Mapping[str, Tensor]) -> Tensor:
        """Boolean (B, C), on the CPU."""
        votes = torch.stack([self.votes[method.needs[0], image] for image in images])
        evidence = self.rule.evidence(method.probabilities(branches), votes)
        return self.rule.present(evidence, votes).cpu()


class Scorer:
    """Scores images with a method and writes what comes out."""

    def __init__(self, setting: Setting, judge: Judge, pool: ThreadPoolExecutor | None):
        self.setting, self.judge, self.pool = setting, judge, pool

    def count_votes(self, runs: Sequence[Run], items: Sequence[Item]) -> None:
        """Ask the captions about a batch, before any method's time is taken; those of the last one are dropped."""
        self.judge.votes.clear()
        for spec in dict.fromkeys(run.method.needs[0] for run in runs):
            good = [item for item in items if any(have.covers(spec) for have in item.features)]

            def count(some: Sequence[Item], spec: ViewSpec = spec) -> None:
                self.judge.count(spec, [item.index for item in some], self._encoded(some))

            if self.pool is not None:
                list(self.pool.map(count, [[item] for item in good]))
            elif good:
                count(good)

    def score(self, run: Run, items: Sequence[Item]) -> float:
        """Append one record for each image; seconds the scoring took."""
        start = time.perf_counter()
        good = [item for item in items if run.error(item) is None]
        answers = iter(self._answers(run, good))
        seconds = time.perf_counter() - start
        ms = 1000 * seconds / max(1, len(good))
        records = [self._record(item, run.error(item) or next(answers), ms) for item in items]
        before = run.writer.count
        run.writer.write(records)
        if run.state is not None and run.writer.count // IMAGES_A_STATE > before // IMAGES_A_STATE:
            run.writer.save_state(run.state)
        return seconds

    def _record(self, item: Item, answer: Answer, ms: float) -> Record:
        id = self.setting.dataset.ids[item.index]
        if isinstance(answer, str):
            return Record(item.index, id, error=answer)
        if not all(scores.isfinite().all() for scores in answer[0].values()):
            return Record(item.index, id, error="the method gave scores that are not numbers")
        return to_record(item.index, id, *answer, ms)

    def _answers(self, run: Run, items: Sequence[Item]) -> list[Answer]:
        method = run.method
        if isinstance(method, OnlineMethod):
            return [self._step(run, method, item) for item in items]
        if self.pool is not None:
            return list(self.pool.map(lambda item: self._alone(method, item), items))
        try:
            return self._together(method, items) if items else []
        except ImageError:  # one of them cannot be looked at again
            return [self._alone(method, item) for item in items]

    def _step(self, run: Run, method: OnlineMethod, item: Item) -> Answer:
        assert run.state is not None
        try:
            branches, run.state = method.step(run.state, self._encoded([item]))
        except ImageError as error:
            return str(error)
        return branches, self.judge(method, [item.index], branches)[0]

    def _alone(self, method: Method, item: Item) -> Answer:
        try:
            return self._together(method, [item])[0]
        except ImageError as error:
            return str(error)

    def _together(self, method: Method, items: Sequence[Item]) -> list[Answer]:
        branches = method.branches(self._encoded(items))
        shown = self.judge(method, [item.index for item in items], branches)
        return [({k: v[i : i + 1] for k, v in branches.items()}, shown[i]) for i in range(len(items))]

    def _encoded(self, items: Sequence[Item]) -> Encoded:
        return to_encoded(items, self.setting.dataset, self.setting.backbone, self.setting.seed)


def _looks_at(method: Method, spec: ViewSpec) -> bool:
    return any(spec.covers(need) for need in method.needs)
