"""Calls in flight, answered together: one thread streams their photos through the tagger's own pipeline."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from mltta.serve.offer import Choice
from mltta.serve.taggers import Taggers
from mltta.session.prepare import Photo
from mltta.tagger import Tagger, Tags

log = logging.getLogger("mltta.serve")
#: photos of one choice that are answered before those who ask for something else have their turn
TURN = 64


class Answered(NamedTuple):
    """What was found in a photo, and its share of the time that this took."""

    tags: Tags
    ms: float


@dataclass(eq=False)
class Job:
    """The photos of one call, on their way."""

    choice: Choice
    images: Sequence[Photo]
    answer: Future[list[Answered]] = field(default_factory=Future)
    tagger: Tagger | None = None
    found: list[Answered] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.answer.done()

    def settle(self, error: BaseException | None = None) -> None:
        """Give whoever waits the answer, or the reason why there is none."""
        if self.wanted and self.answer.set_running_or_notify_cancel():
            if error is None:
                self.answer.set_result(self.found)
            else:
                self.answer.set_exception(error)


class Engine:
    """Photos of calls that ask for the same run in one stream, and a call that comes meanwhile joins it."""

    def __init__(self, taggers: Taggers):
        self.taggers = taggers
        self._ready: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self.photos = 0
        self._thread = threading.Thread(target=self._work, name="mltta-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def waiting(self) -> int:
        """Calls whose turn has not come."""
        return len(self._ready)

    def submit(self, choice: Choice, images: Sequence[Photo]) -> Job:
        """Have the photos of a call tagged; its ``answer`` may be cancelled when nobody waits for it any more."""
        job = Job(choice, images)
        self.taggers.get(choice).add_done_callback(lambda made: self._made(job, made))
        return job

    def close(self) -> None:
        """Finish what was accepted, then end."""
        self.taggers.close()
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _made(self, job: Job, made: Future[Tagger]) -> None:
        if not job.wanted:
            return
        if made.cancelled():
            job.answer.cancel()
        elif (error := made.exception()) is not None:
            job.settle(error)
        else:
            job.tagger = made.result()
            with self._changed:
                self._ready.append(job)
                self._changed.notify()

    def _work(self) -> None:
        while (first := self._next()) is not None:
            run = _Run(self, first)
            try:
                run.answer_all()
            except Exception as error:  # whatever it is, those who wait are told, and the next are served
                log.error("a batch failed: %s: %s", type(error).__name__, error)
                for job in run.jobs:
                    job.settle(error)
            self.photos += run.answered

    def _next(self) -> Job | None:
        with self._changed:
            while True:
                while self._ready:
                    job = self._ready.popleft()
                    if job.wanted:
                        return job
                if self._stopping:
                    return None
                self._changed.wait()

    def joins(self, tagger: Tagger) -> Job | None:
        """A call that waits for the same tagger."""
        with self._changed:
            for job in self._ready:
                if job.tagger is tagger and job.wanted:
                    self._ready.remove(job)
                    return job
        return None


class _Run:
    """One stream of photos, of one call and of those that join it."""

    def __init__(self, engine: Engine, first: Job):
        assert first.tagger is not None
        self.engine, self.tagger, self.jobs = engine, first.tagger, [first]
        self.answered = 0
        #: of each photo that was given to the pipeline, whose it is
        self._owners: deque[Job] = deque()

    def answer_all(self) -> None:
        start = time.perf_counter()
        for tags in self.tagger.stream(self._images()):
            self.answered += 1
            job = self._owners.popleft()
            job.found.append(Answered(tags, 1000 * (time.perf_counter() - start) / self.answered))
            if len(job.found) == len(job.images):
                job.settle()

    def _images(self) -> Iterator[Photo]:
        job: Job | None = self.jobs[0]
        given = 0
        while job is not None:
            for image in job.images:
                if not job.wanted:
                    break
                self._owners.append(job)
                given += 1
                yield image
            # an online method learns from the photos of one call, and of no other
            job = self.engine.joins(self.tagger) if given < TURN and not self.tagger.method.online else None
            if job is not None:
                self.jobs.append(job)
