"""Taggers by what they are asked for: made once, a few kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from mltta.model.backbone import Backbone
from mltta.serve.offer import Choice
from mltta.tagger import Tagger


class Taggers:
    """A label list is encoded once, by a thread of its own, so that a new one does not stop those who have theirs."""

    def __init__(self, models: Mapping[str, Backbone], most: int):
        self._models, self._most = models, most
        self._kept: OrderedDict[Choice, Future[Tagger]] = OrderedDict()
        self._lock = threading.RLock()  # a promise may be kept, or broken, at once
        self._maker = ThreadPoolExecutor(1, "mltta-labels")

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, choice: Choice) -> Future[Tagger]:
        """The tagger, or the promise of one; one that cannot be made is not kept."""
        with self._lock:
            found = self._kept.get(choice)
            if found is None:
                found = self._kept[choice] = self._maker.submit(self._make, choice)
                found.add_done_callback(lambda done: self._forget(choice, done))
            self._kept.move_to_end(choice)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
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

    def _forget(self, choice: Choice, done: Future[Tagger]) -> None:
        if done.cancelled() or done.exception() is not None:
            with self._lock:
                if self._kept.get(choice) is done:
                    del self._kept[choice]
