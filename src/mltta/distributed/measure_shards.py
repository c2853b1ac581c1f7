"""Measuring on a cluster: workers score some places of a dataset at a time, the driver writes the results."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from mltta.distributed.cluster import Fitted, Size, connected, fit, nodes_of, spread
from mltta.errors import ConfigError
from mltta.evaluation.measure import Answers, Measure, Measured, Spread
from mltta.session.features import Counts

#: images that a worker measures at a time, and a lost worker costs
IMAGES = 64


@contextmanager
def measuring(address: str | None = None, size: Size | None = None, images: int = IMAGES) -> Iterator[Spread]:
    """What `evaluate` takes as ``spread``, while a cluster is connected: the same figures as on one machine.

    On CPUs they are the same to the bit. Features that are kept are kept where the workers are.
    """
    with connected(address) as ray:
        fitted = fit(size or Size(), nodes_of(ray))
        if fitted.gpus:
            raise ConfigError(
                "measuring is spread over CPUs only; on a machine with a GPU, measure without --ray"
            )

        def spread_out(measure: Measure, places: Sequence[int]) -> Iterator[Measured]:
            if measure.setting.backbone.device.type != "cpu":
                raise ConfigError("a model on a GPU cannot be sent to workers: add --device cpu")
            yield from _spread(ray, measure, places, fitted, images)

        yield spread_out


def _spread(
    ray: Any, measure: Measure, places: Sequence[int], fitted: Fitted, images: int
) -> Iterator[Measured]:
    sent = replace(measure, execution=replace(measure.execution, threads=fitted.threads))
    held = [ray.put(sent)]
    rows = ({"places": json.dumps(places[at : at + images])} for at in range(0, len(places), images))
    for row in spread(ray, Measurer, (held, fitted.threads), rows, fitted):
        yield pickle.loads(row["measured"])  # our own workers wrote it


class Measurer:
    """Measures some places at a time; made once an actor."""

    def __init__(self, held: list[Any], threads: int):
        import ray

        torch.set_num_threads(threads)
        self.measure: Measure = ray.get(held[0])

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[bytes]]:
        return {"measured": [pickle.dumps(self._some(json.loads(row))) for row in batch["places"]]}

    def _some(self, places: Sequence[int]) -> Measured:
        answers: Answers = []
        self.measure.pipeline.counts = Counts()
        for found in self.measure(places):
            answers += found.answers
        return Measured(len(places), answers, self.measure.pipeline.counts)
