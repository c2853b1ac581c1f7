"""Comparison of methods: results as rows of a table, and an HTML page with per-label AP and example images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltta.data import Dataset
from mltta.errors import MlttaError
from mltta.evaluation.results import Result, check_run, run_name
from mltta.evaluation.summary import INTERVALS, Summary
from mltta.images.decode import load_image
from mltta.metrics import interval_of
from mltta.model.prompts import DEFAULT_TEMPLATE
from mltta.tables.page import Plot, Section, html_page
from mltta.tables.render import Cell, Row, Table

if TYPE_CHECKING:
    from mltta.tables.svg import Drawing

#: footnote if a method has this mark
RECONSTRUCTED = "† Reconstruction: there is no public code for this form, and some constants are ours."


@dataclass(frozen=True)
class Line:
    """A method in a table: one result, or several with different image orders."""

    title: str
    summaries: tuple[Summary, ...]

    def mean(self, name: str) -> float:
        """The mean of a metric over the orders."""
        return float(np.mean([getattr(summary, name) for summary in self.summaries]))

    @property
    def run(self) -> dict[str, Any]:
        """The run's description, from the first order."""
        return self.summaries[0].result.run

    @property
    def name(self) -> str:
        """The title, marked if the method is a reconstruction."""
        return self.title + (" †" if self.run.get("reconstruction") else "")

    @property
    def state(self) -> float | None:
        """Size of an online method's state, in megabytes."""
        return self.summaries[0].result.state_bytes / 1e6 if self.run["online"] else None

    def map(self, name: str = "map") -> Cell:
        """An mAP, with its interval or its spread over the orders."""
        if len(self.summaries) > 1 or name not in INTERVALS:
            return Cell(ours=self.mean(name), note=self.spread(name))
        return Cell(None, self.mean(name), *interval_of(self.summaries[0].drawn(name), 0, 100))

    def spread(self, name: str) -> str:
        """The standard deviation over the orders as text; empty for one order."""
        values = [getattr(summary, name) for summary in self.summaries]
        return f"± {np.std(values, ddof=1):.2f} over {len(values)} orders" if len(values) > 1 else ""

    def gain(self, first: Line, name: str) -> Cell:
        """Difference in mAP from the first method, with a paired interval over images."""
        gained = self.mean(name) - first.mean(name)
        if len(self.summaries) > 1 or len(first.summaries) > 1:
            return Cell(ours=gained)
        drawn = self.summaries[0].drawn(name) - first.summaries[0].drawn(name)
        return Cell(None, gained, *interval_of(drawn))

    @property
    def f1(self) -> float:
        """F1 of the labels shown, in percent."""
        return 100 * float(np.mean([summary.sets.f1 for summary in self.summaries]))

    @property
    def ms(self) -> float:
        """Milliseconds per image, without encoding."""
        return float(np.mean([summary.result.ms for summary in self.summaries]))


def lines(results: Sequence[Result], draws: int = 1000) -> list[Line]:
    """Results as rows of a table; results that differ only in image order share a row."""
    groups: dict[str, dict[Path, Result]] = {}
    for result in results:
        same = json.dumps({name: value for name, value in result.run.items() if name != "order"})
        groups.setdefault(same, {}).setdefault(result.folder, result)
    found = [list(group.values()) for group in groups.values()]
    titles = _titles([group[0] for group in found])
    summaries = [tuple(Summary(result, draws) for result in group) for group in found]
    return list(map(Line, titles, summaries))


def _titles(results: Sequence[Result]) -> list[str]:
    """Titles of results; identical titles get the settings that differ."""
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
    """Compare methods on one dataset; differences are relative to the first method, paired by image."""
    first, run = found[0].summaries[0], found[0].run
    for summary in (summary for line in found for summary in line.summaries):
        why = ""
        if summary.result.run["dataset_digest"] != run["dataset_digest"]:
            why = "has other images than {}: compare results of the same dataset"
        elif not np.array_equal(summary.result.scored, first.result.scored):
            why = "has scores for other images than {}: complete both with the same `mltta eval` command"
        if why:
            raise MlttaError(f"{summary.result.folder} {why.format(first.result.folder)}")
    online = any(line.run["online"] for line in found)
    rows = []
    for line in found:
        cells = []
        for name in INTERVALS:
            cells += [line.map(name), Cell() if line is found[0] else line.gain(found[0], name)]
        cells += [line.map("map_z_score"), Cell(ours=line.f1), Cell(ours=line.ms)]
        rows.append(Row(line.name, (*cells, *[Cell(ours=line.state)] * online)))
    columns = ["mAP", "vs. first", "mAP softmax", "vs. first, softmax", "mAP z-score"]
    lower = ("ms per image", "state, MB")
    columns += ["F1 of sets", *lower[: 1 + online]]
    title = title or f"{run['dataset']}, {run['model']}"
    return Table(title, tuple(columns), tuple(rows), tuple(_notes(found)), lower_is_better=lower)


def _notes(found: Sequence[Line]) -> list[str]:
    first, run = found[0].summaries[0], found[0].run
    result, labels = first.result, len(run["labels"])
    notes = [f"{run['dataset']}, {len(result.scored):,} images, {labels} labels, {run['model']}."]
    notes += [f"{len(result.failed):,} images could not be read."] * bool(result.failed)
    if run["template"] != [DEFAULT_TEMPLATE] or run["descriptions"]:
        said = " and descriptions" if run["descriptions"] else ""
        notes.append(f"Prompted with {run['template']!r}{said}.")
    absent = labels - int((first.targets == 1).any(axis=0).sum())
    notes += [f"{absent} labels have no positives and count as 0."] * bool(absent)
    notes += [f"Incomplete: the dataset has {len(result):,} images."] * (not result.complete)
    return notes + [RECONSTRUCTED] * any(line.run.get("reconstruction") for line in found)


def by_dataset(results: Sequence[Result]) -> list[list[Result]]:
    """Group results by images and model, in their original order."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        check_run(result.run, result.folder)
        groups.setdefault((result.run["dataset_digest"], result.run["model"]), []).append(result)
    return list(groups.values())


def comparison_page(groups: Sequence[Sequence[Line]], title: str = "Methods side by side") -> str:
    """An HTML page, self-contained, with the results of one or several datasets."""
    return html_page(title, [comparison_section(found) for found in groups])


def comparison_section(found: Sequence[Line]) -> Section:
    """Table, per-label AP and gain by label count of methods on one dataset; gains are relative to the first."""
    from mltta.tables.plots import per_class  # needs matplotlib, which the light install lacks

    run = found[0].run
    where = f"{run['dataset']}, {run['model']}"
    by_label = {x.title: np.mean([one.per_class for one in x.summaries], axis=0).tolist() for x in found}
    drawn = per_class(f"AP of each label, {where}", run["labels"], by_label)
    figures = [Plot(drawn, "Labels sorted by the first method's AP.")]
    if len(found) > 1:
        figures.append(Plot(gain_by_label_count(found), "Bins without images are left empty."))
    return Section(where, tables=(comparison(found),), figures=tuple(figures))


def gain_by_label_count(found: Sequence[Line]) -> Drawing:
    """Gain in mAP over the first method, for images with few and with many labels."""
    from mltta.tables.plots import bars_by_group

    run, first = found[0].run, found[0].summaries[0].by_count

    def gap(line: Line, name: str) -> float | None:
        gained = line.summaries[0].by_count[name].mean_ap - first[name].mean_ap
        return None if np.isnan(gained) else float(gained)

    bins = list(first)
    gains = {line.title: [gap(line, name) for name in bins] for line in found[1:]}
    title = f"Gain over {found[0].title} by labels per image, {run['dataset']}, {run['model']}"
    return bars_by_group(title, [f"{name} labels" for name in bins], gains, "mAP gained")


def example_section(found: Sequence[Line], dataset: Dataset, count: int = 4) -> Section:
    """The images with the most labels, and each method's output: logits, true labels in colour."""
    from mltta.tables.plots import label_logits

    first = found[0].summaries[0]
    names = first.result.run["labels"]
    most = np.argsort(-(first.targets == 1).sum(axis=1), kind="stable")[:count]
    figures = []
    for row in most.tolist():
        index = int(first.result.scored[row])
        truth = [names[i] for i in (first.targets[row] == 1).nonzero()[0]]
        # branches are averaged, so that methods with one and with two prompts have the same scale
        scores = {x.title: x.summaries[0].result.branches()[row].mean(axis=0).tolist() for x in found}
        image = load_image(dataset.images[index])
        figures.append(Plot(label_logits(dataset.ids[index], image, names, scores, truth)))
    said = "The images with the most labels. Bars show logits, the mean of all prompts. True labels are in color."
    return Section(f"Examples from {dataset.name}", (said,), figures=tuple(figures))
