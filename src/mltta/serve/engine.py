"""Batches concurrent requests: one thread streams their photos through a tagger."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from mltta.model.backbone import Backbone
from mltta.serve.offer import Choice
from mltta.session.prepare import Photo
from mltta.tagger import Tagger, Tags

log = logging.getLogger("mltta.serve")
#: photos processed for one choice before another choice gets its turn
TURN = 64


class Answered(NamedTuple):
    """A photo's tags, and its share of the batch's time."""

    tags: Tags
    ms: float


class Taggers:
    """Cache of taggers. A separate thread encodes label lists, so that new lists do not block other requests."""

    def __init__(self, models: Mapping[str, Backbone], most: int):
        self._models, self._most = models, most
        self._kept: dict[Choice, Future[Tagger]] = {}  # least recently used first
        self._lock = threading.Lock()
        self._maker = ThreadPoolExecutor(1, "mltta-labels")

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, choice: Choice) -> Future[Tagger]:
        """The tagger as a future; failed ones are retried."""
        with self._lock:
            found = self._kept.pop(choice, None)
            if found is None or (found.done() and (found.cancelled() or found.exception())):
                model, settings = self._models[choice.model], dict(choice.settings)
                settings |= {"where": choice.where, "explain": choice.captions, "language": choice.language}
                found = self._maker.submit(Tagger, model, choice.labels, choice.method, **settings)
            self._kept[choice] = found
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
            return found

    def close(self) -> None:
        self._maker.shutdown(wait=True, cancel_futures=True)


@dataclass(eq=False)
class Job:
    """The photos of one request, and a future for the results."""

    photos: Sequence[Photo]
    answer: Future[list[Answered]] = field(default_factory=Future)
    tagger: Tagger | None = None
    found: list[Answered] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether a client is still waiting for the results."""
        return not self.answer.done()

    def settle(self, error: BaseException | None = None) -> None:
        """Set the results, or the error."""
        if self.wanted and self.answer.set_running_or_notify_cancel():
            if error is None:
                self.answer.set_result(self.found)
            else:
                self.answer.set_exception(error)


class Engine:
    """Runs the photos of requests with the same choice in one stream, which later requests can join."""

    def __init__(self, taggers: Taggers):
        self.taggers = taggers
        self._ready: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="mltta-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._ready)

    def submit(self, choice: Choice, photos: Sequence[Photo]) -> Job:
        """Submit the photos of a request; its ``answer`` may be cancelled if the client disconnects."""
        job = Job(photos)
        self.taggers.get(choice).add_done_callback(lambda made: self._made(job, made))
        return job

    def close(self) -> None:
        """Finish accepted requests, then stop."""
        self.taggers.close()
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _made(self, job: Job, made: Future[Tagger]) -> None:
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
            jobs = [first]
            try:
                self._answer(jobs)
            except Exception as error:  # report any error to the clients, and continue
                log.error("a batch failed: %s: %s", type(error).__name__, error)
                for job in jobs:
                    job.settle(error)

    def _answer(self, jobs: list[Job]) -> None:
        """Process one stream of photos, from the first request and those that join it."""
        tagger = jobs[0].tagger
        assert tagger is not None
        owners: deque[Job] = deque()  # owners of the photos in the tagger

        def photos() -> Iterator[Photo]:
            given = 0
            for job in jobs:
                for photo in job.photos:
                    if not job.wanted:
                        break
                    owners.append(job)
                    given += 1
                    yield photo
                # an online method learns only from the photos of one request
                if given < TURN and not tagger.method.online and (other := self._next(tagger)):
                    jobs.append(other)

        start = time.perf_counter()
        for done, tags in enumerate(tagger.stream(photos()), start=1):
            job = owners.popleft()
            job.found.append(Answered(tags, 1000 * (time.perf_counter() - start) / done))
            if len(job.found) == len(job.photos):
                job.settle()

    def _next(self, tagger: Tagger | None = None) -> Job | None:
        """Wait for the next request, or return one that waits for this tagger."""
        with self._changed:
            while True:
                self._ready = deque(job for job in self._ready if job.wanted)
                for job in self._ready:
                    if tagger is None or job.tagger is tagger:
                        self._ready.remove(job)
                        return job
                if tagger is not None or self._stopping:
                    return None
                self._changed.wait()
