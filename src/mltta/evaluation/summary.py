"""Metrics of a result; expensive ones are cached next to it."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import MlttaError
from mltta.evaluation.results import Result
from mltta.metrics import (
    SetMetrics,
    average_precision,
    bootstrap_map,
    by_label_count,
    calibration_error,
    interval_of,
    mean_average_precision,
    rows_by_count,
    set_metrics,
)
from mltta.storage import atomic
from mltta.storage.checksums import sealed, unsealed

#: metrics with bootstrap samples
INTERVALS = ("map", "map_softmax")
FORMAT, BOOTSTRAP = "mltta-bootstrap-1", "bootstrap.json"


class Summary:
    """Metrics of one result, each computed on first use.

    Args:
        draws: number of bootstrap samples for confidence intervals. `save` stores them, as they take long to compute.
    """

    def __init__(self, result: Result, draws: int = 1000):
        if not len(result.scored):
            why = next((f": {id}: {reason}" for id, reason in result.failed.items()), "")
            raise MlttaError(f"{result.folder} has no scores: no image could be read{why}")
        self.result, self.draws = result, draws

    @cached_property
    def targets(self) -> NDArray[np.int8]:
        return self.result.targets()

    @cached_property
    def raw(self) -> NDArray[np.float32]:
        return self.result.scores()

    @cached_property
    def softmax(self) -> NDArray[np.float32]:
        return self.result.scores("softmax")

    @cached_property
    def map(self) -> float:
        """mAP in percent from raw logits; tied scores share a rank."""
        return mean_average_precision(self.raw, self.targets)

    @cached_property
    def map_released(self) -> float:
        """mAP as in the authors' code: ties in the order left by the sort."""
        return mean_average_precision(self.raw, self.targets, ties="released")

    @cached_property
    def map_softmax(self) -> float:
        return mean_average_precision(self.softmax, self.targets)

    @cached_property
    def map_z_score(self) -> float:
        return mean_average_precision(self.result.scores("z-score"), self.targets)

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the mAP, from a bootstrap over images."""
        return interval_of(self.drawn("map"), 0, 100)

    @property
    def interval_softmax(self) -> tuple[float, float]:
        return interval_of(self.drawn("map_softmax"), 0, 100)

    def drawn(self, name: str) -> NDArray[np.float64]:
        """The mAP of each bootstrap sample; results for the same images use the same samples."""
        if name not in self._drawn:
            scores = self.raw if name == "map" else self.softmax
            self._drawn[name] = bootstrap_map(scores, self.targets, self.draws)
            self._saved = False
        return self._drawn[name]

    @cached_property
    def _drawn(self) -> dict[str, NDArray[np.float64]]:
        """The samples saved for exactly this result."""
        self._saved = False
        with suppress(OSError):
            held = unsealed((self.result.folder / BOOTSTRAP).read_bytes(), FORMAT) or {}
            if (held.get("result"), held.get("draws")) == (self.result.digest, self.draws):
                self._saved = (self.result.folder / "summary.json").is_file()
                return {name: np.array(drawn) for name, drawn in held["drawn"].items()}
        return {}

    @cached_property
    def per_class(self) -> NDArray[np.float64]:
        """AP of each label in percent."""
        return 100 * average_precision(self.raw, self.targets)

    @cached_property
    def by_count(self) -> dict[str, Any]:
        return by_label_count(self.raw, self.targets)

    def interval_by_count(self, name: str) -> tuple[float, float]:
        """95% interval of the mAP of the images in a bin of `by_count`."""
        rows = rows_by_count(self.targets)[name]
        return interval_of(
            bootstrap_map(self.raw[rows], self.targets[rows], self.draws, absent="skip"), 0, 100
        )

    @cached_property
    def sets(self) -> SetMetrics:
        """Precision, recall and F1 of the labels shown."""
        return set_metrics(self.result.present(), self.targets)

    @cached_property
    def calibration(self) -> float:
        """Expected calibration error of the tagger's scores, as probabilities that a label is present."""
        return calibration_error(self.result.shown(), self.targets)

    def as_dict(self) -> dict[str, Any]:
        """All metrics as plain data; None for undefined ones, such as the mAP of no images."""
        run = self.result.run
        sets = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self.sets).items()}
        found = {
            "title": self.result.title,
            **{k: run[k] for k in ("dataset", "model", "method", "config", "order", "seed")},
            "images": len(self.result.scored),
            "failed": self.result.failed,
            "mAP": self.map,
            "mAP_interval": list(self.interval),
            "mAP_released_ties": self.map_released,
            "mAP_softmax": self.map_softmax,
            "mAP_softmax_interval": list(self.interval_softmax),
            "mAP_z_score": self.map_z_score,
            "by_label_count": {name: asdict(one) for name, one in self.by_count.items()},
            "present": sets,
            "calibration_error": self.calibration,
            "ms_beyond_encoding": self.result.ms,
            "AP": dict(zip(run["labels"], self.per_class.tolist(), strict=True)),
        }
        return {name: _known(value) for name, value in found.items()}

    def save(self) -> None:
        """Write summary.json and the bootstrap samples next to the scores, unless they exist."""
        for name in INTERVALS:
            self.drawn(name)
        if self._saved:
            return
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        drawn = {name: own.tolist() for name, own in self._drawn.items()}
        kept = {"format": FORMAT, "result": self.result.digest, "draws": self.draws, "drawn": drawn}
        for name, said in (("summary.json", text), (BOOTSTRAP, json.dumps(sealed(kept)))):
            with atomic.writing(file := self.result.folder / name):
                atomic.write(file, said.encode(errors="backslashreplace"), durable=False, follow=False)


def _known(value: Any) -> Any:
    """Replace every non-finite number by None, because JSON has no such values."""
    if isinstance(value, dict):
        return {name: _known(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
