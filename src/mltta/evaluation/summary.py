"""From results to figures, and from figures to a table of methods side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import MlttaError
from mltta.evaluation.results import Result, run_name
from mltta.evaluation.run_file import check_run
from mltta.metrics import (
    SetMetrics,
    average_precision,
    by_label_count,
    calibration_error,
    interval,
    mean_average_precision,
    paired_difference,
    set_metrics,
)
from mltta.model.prompts import DEFAULT_TEMPLATE
from mltta.storage import atomic
from mltta.tables.render import Cell, Row, Table

#: below a table with such a method, whose name has the mark
RECONSTRUCTED = (
    "† A reconstruction: there is no public code for it in this form, and some of its constants are ours."
)


class Summary:
    """The figures of one result, each worked out when it is asked for."""

    def __init__(self, result: Result, draws: int = 1000):
        if not len(result.scored):
            why = next((f": {id}: {reason}" for id, reason in result.failed.items()), "")
            raise MlttaError(f"{result.folder} has no scores: no image was read{why}")
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
        """mAP in percent by raw logits, ties sharing a rank."""
        return mean_average_precision(self.raw, self.targets)

    @cached_property
    def map_released(self) -> float:
        """mAP as the authors' code computes it: ties in the order the sort leaves them."""
        return mean_average_precision(self.raw, self.targets, ties="released")

    @cached_property
    def map_softmax(self) -> float:
        return mean_average_precision(self.softmax, self.targets)

    @cached_property
    def z_score(self) -> NDArray[np.float32]:
        return self.result.scores("z-score")

    @cached_property
    def map_z_score(self) -> float:
        return mean_average_precision(self.z_score, self.targets)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95% interval of the mAP, from a bootstrap over images."""
        return interval(self.raw, self.targets, draws=self.draws)[1:]

    @cached_property
    def interval_softmax(self) -> tuple[float, float]:
        return interval(self.softmax, self.targets, draws=self.draws)[1:]

    @cached_property
    def per_class(self) -> NDArray[np.float64]:
        """AP of each label in percent."""
        return 100 * average_precision(self.raw, self.targets)

    @cached_property
    def by_count(self) -> dict[str, Any]:
        return by_label_count(self.raw, self.targets)

    @cached_property
    def sets(self) -> SetMetrics:
        """Precision, recall and F1 of the labels called present."""
        return set_metrics(self.result.present(), self.targets)

    @cached_property
    def calibration(self) -> float:
        """Expected calibration error of the score that a tagger shows, as a probability that a label is there."""
        return calibration_error(self.result.shown(), self.targets)

    def as_dict(self) -> dict[str, Any]:
        """Everything in plain data; None for a figure that does not exist, such as the mAP of no image."""
        labels = self.result.run["labels"]
        sets = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(self.sets).items()}
        found = {
            "title": self.result.title,
            **{k: self.result.run[k] for k in ("dataset", "model", "method", "config", "order", "seed")},
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
            "AP": dict(zip(labels, self.per_class.tolist(), strict=True)),
        }
        return {name: _known(value) for name, value in found.items()}

    def save(self) -> None:
        """Write summary.json beside the scores."""
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        file = self.result.folder / "summary.json"
        try:
            atomic.write(file, text.encode(errors="backslashreplace"), durable=False)
        except OSError as error:
            raise MlttaError(f"{file} cannot be written: {error.strerror}") from error


@dataclass(frozen=True)
class Line:
    """A method in a table: one result, or those of several orders of the same images."""

    title: str
    summaries: tuple[Summary, ...]

    def mean(self, name: str) -> float:
        return float(np.mean([getattr(summary, name) for summary in self.summaries]))

    @property
    def f1(self) -> float:
        """F1 of the labels called present, in percent."""
        return 100 * float(np.mean([summary.sets.f1 for summary in self.summaries]))

    @property
    def ms(self) -> float:
        """Milliseconds an image beyond encoding."""
        return float(np.mean([summary.result.ms for summary in self.summaries]))

    def spread(self, name: str) -> str:
        """The standard deviation over the orders, in words; nothing for one order."""
        values = [getattr(summary, name) for summary in self.summaries]
        return f"± {np.std(values, ddof=1):.2f} over {len(values)} orders" if len(values) > 1 else ""


def lines(results: Sequence[Result], draws: int = 1000) -> list[Line]:
    """Results as the lines of a table; those that differ in the order of the images alone share one."""
    groups: dict[str, dict[Path, Result]] = {}
    for result in results:
        same = json.dumps({name: value for name, value in result.run.items() if name != "order"})
        groups.setdefault(same, {}).setdefault(result.folder, result)
    found = [list(group.values()) for group in groups.values()]
    titles = _titles([group[0] for group in found])
    return [
        Line(title, tuple(Summary(result, draws) for result in group))
        for title, group in zip(titles, found, strict=True)
    ]


def _titles(results: Sequence[Result]) -> list[str]:
    """Their titles; those that would be called the same say what else is different."""
    found = []
    for result in results:
        alike = [other for other in results if other.title == result.title]
        different = [
            f"no {name}" if value is None else f"{name} {_short(value)}"
            for name, value in result.run.items()
            if name != "order" and any(other.run.get(name) != value for other in alike)
        ]
        found.append(result.title + (f" [{', '.join(different)}]" if different else ""))
    return found


def _short(value: Any) -> Any:
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return value if isinstance(value, (str, int, float)) else run_name({"": value})


def comparison(found: Sequence[Line], title: str = "") -> Table:
    """Methods of one dataset side by side; differences are to the first one, paired image by image."""
    first = found[0].summaries[0]
    for line in found:
        for summary in line.summaries:
            if summary.result.run["dataset_digest"] != first.result.run["dataset_digest"]:
                raise MlttaError(
                    f"{summary.result.folder} was measured on other images than {first.result.folder}: "
                    "compare results of one dataset"
                )
            if not np.array_equal(summary.result.scored, first.result.scored):
                raise MlttaError(
                    f"{summary.result.folder} has scores for other images than {first.result.folder}: "
                    "finish both, with the same `mltta eval` command"
                )
    run = first.result.run
    notes = [
        f"{run['dataset']}, {len(first.result.scored):,} images, {len(run['labels'])} labels, {run['model']}."
    ]
    notes += [f"{len(first.result.failed):,} images could not be read."] * bool(first.result.failed)
    if run["template"] != [DEFAULT_TEMPLATE] or run["descriptions"]:
        said = " and descriptions" if run["descriptions"] else ""
        notes.append(f"Prompted with {run['template']!r}{said}.")
    absent = int((first.targets == 1).any(axis=0).size - (first.targets == 1).any(axis=0).sum())
    notes += [f"{absent} of the labels have no positive and count as 0."] * bool(absent)
    notes += [f"Not finished: the dataset has {len(first.result):,} images."] * (not first.result.complete)
    rebuilt = any(line.summaries[0].result.run.get("reconstruction") for line in found)
    notes += [RECONSTRUCTED] * rebuilt
    any_online = any(line.summaries[0].result.run["online"] for line in found)
    rows = []
    for line in found:
        summary = line.summaries[0]
        cells = []
        for name, scores in (("map", "raw"), ("map_softmax", "softmax")):
            # intervals are over images: they belong to a single result, or to two, not to the mean of some orders
            ends: tuple[float | None, float | None] = (None, None)
            if len(line.summaries) == 1:
                ends = summary.interval if scores == "raw" else summary.interval_softmax
            cells.append(Cell(None, line.mean(name), *ends, note=line.spread(name)))
            if summary is first:
                cells.append(Cell())
                continue
            ends = (None, None)
            if len(line.summaries) == len(found[0].summaries) == 1:
                gap = paired_difference(
                    getattr(summary, scores), getattr(first, scores), first.targets, draws=summary.draws
                )
                ends = (gap.low, gap.high)
            cells.append(Cell(None, line.mean(name) - found[0].mean(name), *ends))
        cells += [
            Cell(ours=line.mean("map_z_score"), note=line.spread("map_z_score")),
            Cell(ours=line.f1),
            Cell(ours=line.ms),
        ]
        if any_online:
            cells.append(
                Cell(ours=summary.result.state_bytes / 1e6 if summary.result.run["online"] else None)
            )
        mark = " †" if summary.result.run.get("reconstruction") else ""
        rows.append(Row(line.title + mark, tuple(cells)))
    columns = (
        "mAP",
        "against the first",
        "mAP softmax",
        "against the first, softmax",
        "mAP z-score",
        "F1 of sets",
        "ms an image",
        *["state, MB"] * any_online,
    )
    return Table(
        title or f"{run['dataset']}, {run['model']}",
        columns,
        tuple(rows),
        tuple(notes),
        lower_is_better=("ms an image", "state, MB"),
    )


def by_dataset(results: Sequence[Result]) -> list[list[Result]]:
    """Results apart by the images and the model they were measured with, in the order they came."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        check_run(result.run, result.folder)
        groups.setdefault((result.run["dataset_digest"], result.run["model"]), []).append(result)
    return list(groups.values())


def _known(value: Any) -> Any:
    """A value with None for every number that is not one, as JSON has none such."""
    if isinstance(value, dict):
        return {name: _known(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
