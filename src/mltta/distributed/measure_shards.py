"""Evaluation on a cluster: workers score batches of images, the driver writes the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mltta.distributed.cluster import Size, connected, spread
from mltta.errors import ConfigError
from mltta.evaluation.measure import Measure, Measured, Spread
from mltta.session.features import Counts
from mltta.session.scorer import Scored

#: images per batch, lost if a worker is lost
IMAGES = 64


@contextmanager
def measuring(address: str | None = None, size: Size | None = None, images: int = IMAGES) -> Iterator[Spread]:
    """Connect to a cluster and return the ``spread`` argument of `evaluate`: same results as on one machine.

    On CPUs results are bit-identical. Features are cached on the workers' machines.
    """
    with connected(address, size) as (ray, fitted):
        if fitted.gpus:
            raise ConfigError("evaluation on a cluster uses CPUs only; with a GPU, run without --ray")

        def spread_out(measure: Measure, places: Sequence[int]) -> Iterator[Measured]:
            if measure.question.backbone.device.type != "cpu":
                raise ConfigError("a model on a GPU cannot be sent to workers: add --device cpu")
            sent = replace(measure, execution=replace(measure.execution, threads=fitted.threads))
            jobs = (places[at : at + images] for at in range(0, len(places), images))
            yield from spread(ray, fitted, jobs, Measurer, [ray.put(sent)])

        yield spread_out


class Measurer:
    """Scores batches of images.

    Args:
        held: reference to the measure in the object store, in a list so that Ray does not fetch it for every call.
    """

    def __init__(self, held: list[Any]):
        import ray

        self.measure: Measure = ray.get(held[0])

    def __call__(self, places: Sequence[int]) -> Measured:
        features = self.measure.session.features
        features.counts = Counts()
        records: dict[int, list[Scored]] = {}
        for found in self.measure(places):
            for number, some in found.records.items():
                records.setdefault(number, []).extend(some)
        return Measured(len(places), records, features.counts)
