"""Taggers by what calls choose: made once, the most recent kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from mltta.model.backbone import Backbone
from mltta.serve.offer import Choice
from mltta.tagger import Tagger


class Taggers:
    """A label list is encoded once, by a thread of its own, so that a new list does not block calls with known ones."""

    def __init__(self, models: Mapping[str, Backbone], most: int):
        self._models, self._most = models, most
        self._kept: dict[Choice, Future[Tagger]] = {}  # the latest used last
        self._lock = threading.Lock()
        self._maker = ThreadPoolExecutor(1, "mltta-labels")

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, choice: Choice) -> Future[Tagger]:
        """The tagger, or the promise of one; one that could not be made is tried again."""
        with self._lock:
            found = self._kept.pop(choice, None)
            if found is None or (found.done() and (found.cancelled() or found.exception())):
                found = self._maker.submit(self._make, choice)
            self._kept[choice] = found
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
            return found

    def close(self) -> None:
        self._maker.shutdown(wait=True, cancel_futures=True)

    def _make(self, choice: Choice) -> Tagger:
        return Tagger(
            self._models[choice.model],
            choice.labels,
            choice.method,
            where=choice.where,
            explain=choice.captions,
            **dict(choice.settings),
        )
