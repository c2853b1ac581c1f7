"""The paper's tables and figures, run on whatever data and weights there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mltta.captions.store import default_captions
from mltta.data import Dataset
from mltta.errors import ConfigError
from mltta.evaluation.comparison import Line
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.results import Result
from mltta.evaluation.summary import Summary
from mltta.methods import create_method, list_methods, method_class
from mltta.model.backbone import Backbone
from mltta.reproduction.compare import side_by_side
from mltta.reproduction.paper import PaperCell, Setting, load_table
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.plots import lines

VIEWS = (1, 2, 4, 8, 16, 32, 64, 128)
VIEW_METHODS = {"RLCF": "rlcf", "TPT": "tpt", "ML-TTA": "ml-tta"}
TITLES = {
    "clip": "CLIP",
    "dmn": "DMN",
    "dart": "DART",
    "tda": "TDA",
    "tpt": "TPT",
    "difftpt": "DiffTPT",
    "rlcf": "RLCF",
    "ml-tta": "ML-TTA",
}


@dataclass(frozen=True)
class Place:
    """A model on a dataset: where cells can be measured."""

    model: str
    dataset_name: str
    backbone: Backbone
    dataset: Dataset
    #: whether it is the split that the paper measures on
    own_split: bool = True
    #: the model with learned prompts, by how the paper's tables call them: "coop", "maple"
    prompted: Mapping[str, Backbone] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """Whether these are the images that the papers measure on."""
        return self.own_split and len(self.dataset) == self.dataset.published

    @property
    def key(self) -> str:
        """The dataset as a setting calls it: the paper's name for the paper's images, else our own."""
        return self.dataset_name if self.published else self.dataset.name

    @property
    def title(self) -> str:
        dataset = self.dataset_name if self.published else self.dataset.name
        return f"{self.model}, {dataset}, {len(self.dataset):,} images"


@dataclass
class Reproduction:
    """What was measured so far: every cell by its setting, the results behind them, and what could not be run."""

    out: Path
    teacher: Backbone | str = "self"
    orders: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: dict[Setting, Cell] = field(default_factory=dict)
    found: dict[Setting, tuple[Summary, ...]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def measure(self, place: Place, settings: Iterable[Setting]) -> None:
        """Run what these settings need at a place, in one pass over its images.

        Args:
            settings: any cells; their model and dataset are replaced by the place's.
        """
        wanted: dict[str, list[Setting]] = {}
        for setting in dict.fromkeys(_at(place, setting, "mAP") for setting in settings):
            if setting not in self.found:
                wanted.setdefault(setting.init, []).append(setting)
        for init, several in wanted.items():
            backbone = place.backbone if init == "template" else place.prompted.get(init)
            if backbone is None:
                self.skipped.setdefault(f"{init} prompts", "no learned prompts were given")
            else:
                self._measure(place, backbone, several)

    def _measure(self, place: Place, backbone: Backbone, settings: Sequence[Setting]) -> None:
        """Run settings that share their prompts."""
        base = default_captions(backbone)
        recipes: dict[Setting, list[Recipe]] = {}
        for setting in settings:
            if setting.method not in list_methods():
                self.skipped[TITLES[setting.method]] = "not among the methods here"
                continue
            options: dict[str, Any] = dict(setting.options)
            try:
                create_method(
                    setting.method,
                    backbone,
                    place.dataset.labels,
                    captions=base,
                    teacher=self.teacher,
                    **options,
                )
            except ConfigError as error:
                self.skipped[f"{TITLES[setting.method]} on {place.model}"] = str(error)
                continue
            shuffled = range(self.orders) if method_class(setting.method).online else (None,)
            recipes[setting] = [Recipe(setting.method, options, order=order) for order in shuffled]
        wanted = [recipe for several in recipes.values() for recipe in several]
        if not wanted:
            return
        done = evaluate(
            place.dataset,
            backbone,
            wanted,
            out=self.out,
            captions=base,
            teacher=self.teacher,
            **self.options,
        )
        results = iter(done.results)
        for setting, several in recipes.items():
            self._keep(setting, [next(results) for _ in several])

    def _keep(self, setting: Setting, results: Sequence[Result]) -> None:
        summaries = tuple(Summary(result) for result in results)
        self.found[setting] = summaries
        values = [summary.map for summary in summaries]
        low, high = summaries[0].interval
        note = "taught by itself" if results[0].run["teacher"] == "self" else ""
        if len(values) > 1:
            self.measured[setting] = Cell(
                ours=float(np.mean(values)), note=f"± {np.std(values, ddof=1):.2f} over {len(values)} orders"
            )
        else:
            self.measured[setting] = Cell(ours=values[0], low=low, high=high, note=note)
        for name, one in summaries[0].by_count.items():
            if not np.isnan(one.mean_ap):
                by_count = replace(setting, metric=f"mAP by label count: {name}")
                self.measured[by_count] = Cell(ours=one.mean_ap, note=note)
        self.measured[replace(setting, metric="seconds")] = Cell(ours=results[0].ms / 1000, note=note)

    def table(self, number: int, places: Sequence[Place]) -> list[Table]:
        """A table of the paper with our numbers in it, and one of ours for what the paper has no place for."""
        printed = {cell.setting for cell in load_table(number).cells}
        own = [p for p in places if not any(_at(p, setting) in printed for setting in printed)]
        return [
            side_by_side(number, self.measured),
            *([own_table(number, own, self.measured)] if own else []),
        ]

    def lines(self, place: Place, methods: Sequence[str] = ("clip", "tpt", "ml-tta")) -> list[Line]:
        """The results of whole methods at a place, as they were run."""
        settings = [Setting.of(place.model, method, place.key) for method in methods]
        return [Line(TITLES[s.method], self.found[s]) for s in settings if s in self.found]


def settings_of(number: int) -> list[Setting]:
    """Everything a table measures."""
    return [cell.setting for cell in load_table(number).cells if cell.setting.dataset != "average"]


def view_settings() -> list[Setting]:
    """Everything the figure of views measures."""
    return [Setting.of("", method, "", views=n) for method in VIEW_METHODS.values() for n in VIEWS]


def view_figure(place: Place, done: Reproduction) -> tuple[str, Table]:
    """mAP over the number of views, as a plot and as a table."""
    series = {}
    for title, method in VIEW_METHODS.items():
        settings = [Setting.of(place.model, method, place.key, views=n) for n in VIEWS]
        if all(setting in done.measured for setting in settings):
            series[title] = [done.measured[setting] for setting in settings]
    plot = lines(
        f"Number of views, {place.title}",
        VIEWS,
        {title: [cell.ours for cell in cells] for title, cells in series.items()},
        "views of an image",
        "mAP",
    )
    rows = tuple(Row(title, tuple(cells)) for title, cells in series.items())
    # a note below says what a cell's would say 8 times
    notes = ("RLCF is taught by the model itself.",) if done.teacher == "self" and "RLCF" in series else ()
    rows = tuple(replace(row, cells=tuple(replace(cell, note="") for cell in row.cells)) for row in rows)
    return plot, Table(f"Number of views, {place.title}", tuple(map(str, VIEWS)), rows, notes, best="row")


def own_table(number: int, places: Sequence[Place], measured: Mapping[Setting, Cell]) -> Table:
    """A paper's table laid out for models and images of ours."""
    source = load_table(number)
    block = _block(source.cells)
    columns = tuple(dict.fromkeys(cell.column for cell in block))
    by_place = len(columns) == 1 or number in (1, 2, 5, 6)
    rows: list[Row] = []
    if by_place:
        for cell in block:
            cells = tuple(measured.get(_at(place, cell.setting), Cell()) for place in places)
            rows.append(Row(cell.row, cells))
        heads = tuple(place.title for place in places)
    else:
        for place in places:
            names = dict.fromkeys(cell.row for cell in block)
            for name in names:
                own = {c.column: measured.get(_at(place, c.setting), Cell()) for c in block if c.row == name}
                label, group = (place.title, "") if len(names) == 1 else (name, place.title)
                rows.append(Row(label, tuple(own.get(column, Cell()) for column in columns), group))
        heads = columns
    best = {4: "", 7: "row"}.get(number, "column")
    notes = ("Seconds are those beyond encoding the views.",) * (number == 4)
    return Table(
        f"Table {number}, our models and images: {source.title}",
        heads,
        tuple(rows),
        notes,
        source.unit,
        digits=3 if number == 4 else 2,
        best=best,  # type: ignore[arg-type]
    )


def _block(cells: Sequence[PaperCell]) -> list[PaperCell]:
    """The cells of the model and dataset that a table has most of: what it measures, whatever it measures it on."""
    apart: dict[tuple[str, str], list[PaperCell]] = {}
    for cell in cells:
        if cell.setting.dataset != "average":
            apart.setdefault((cell.setting.model, cell.setting.dataset), []).append(cell)
    return max(apart.values(), key=len)


def _at(place: Place, setting: Setting, metric: str | None = None) -> Setting:
    return replace(setting, model=place.model, dataset=place.key, metric=metric or setting.metric)
