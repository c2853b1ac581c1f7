"""Figures for Prometheus: calls, photos, times, what waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from mltta.serve.engine import Engine

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)


class Metrics:
    """Each server counts for itself."""

    def __init__(self, engine: Engine) -> None:
        self._registry = here = CollectorRegistry()
        self.calls = Counter("mltta_calls", "Calls by route and status.", ["route", "status"], registry=here)
        self.images = Counter("mltta_images", "Images by outcome.", ["outcome"], registry=here)
        self.seconds = Histogram(
            "mltta_call_seconds", "Until the answer.", ["route"], buckets=_SECONDS, registry=here
        )
        self.in_flight = Gauge("mltta_calls_in_flight", "Calls being read or answered.", registry=here)
        waiting = Gauge("mltta_calls_waiting", "Calls whose turn has not come.", registry=here)
        waiting.set_function(lambda: engine.waiting)
        kept = Gauge("mltta_label_lists", "Label lists whose features are kept.", registry=here)
        kept.set_function(lambda: len(engine.taggers))

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)
