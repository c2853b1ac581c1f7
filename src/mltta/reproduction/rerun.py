"""The paper's tables and figures, run on whatever data and weights there are, with our numbers in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from mltta.data import Dataset
from mltta.errors import ConfigError
from mltta.evaluation.comparison import Line
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.summary import Summary
from mltta.methods import Method, list_methods
from mltta.model.backbone import Backbone
from mltta.reproduction.paper import PaperCell, Setting, load_table
from mltta.session.question import Question
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.plots import lines

K = TypeVar("K")
VIEWS = (1, 2, 4, 8, 16, 32, 64, 128)
VIEW_METHODS = {"RLCF": "rlcf", "TPT": "tpt", "ML-TTA": "ml-tta"}
TITLES = {name: name.upper() for name in ("clip", "dmn", "dart", "tda", "tpt", "rlcf", "ml-tta")}
TITLES["difftpt"] = "DiffTPT"
DATASETS = ("coco2014", "coco2017", "voc2007", "voc2012", "nuswide")  # what the paper's average is over

# Table 4 mixes seconds with mAP, Table 7 compares along its rows.
_BEST: dict[int, Literal["column", "row", ""]] = {4: "", 7: "row"}


@dataclass(frozen=True)
class Bench:
    """A model and a dataset: where cells can be measured."""

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
        return f"{self.model}, {self.key}, {len(self.dataset):,} images"

    def at(self, setting: Setting, metric: str | None = None) -> Setting:
        """A setting with this model and dataset."""
        return replace(setting, model=self.model, dataset=self.key, metric=metric or setting.metric)


def run_each(
    place: Bench,
    backbone: Backbone,
    wanted: Mapping[K, Recipe],
    *,
    orders: Sequence[int | None],
    template: str | None = None,
    teacher: Backbone | str = "self",
    **options: Any,
) -> tuple[dict[K, tuple[Method, Line]], dict[K, str]]:
    """Measure recipes in one pass over the images: methods with their results, and why others cannot be run.

    Args:
        orders: in which online methods see the images.
        options: of `evaluate`.
    """
    question = Question(backbone, place.dataset.labels, template=template, teacher=teacher)
    methods: dict[K, Method] = {}
    skipped: dict[K, str] = {}
    for key, recipe in wanted.items():
        try:
            methods[key] = question.method(recipe.method, **recipe.options)
        except ConfigError as error:
            skipped[key] = str(error)
    if not methods:
        return {}, skipped
    several = {
        key: [replace(wanted[key], order=order) for order in (orders if method.online else (None,))]
        for key, method in methods.items()
    }
    recipes = [recipe for some in several.values() for recipe in some]
    done = evaluate(place.dataset, backbone, recipes, template=template, teacher=teacher, **options)
    results = iter(done.results)
    found = {
        key: (methods[key], Line(wanted[key].name, tuple(Summary(next(results)) for _ in some)))
        for key, some in several.items()
    }
    return found, skipped


@dataclass
class Reproduction:
    """What was measured so far: every cell by its setting, the results behind them, and what could not be run."""

    out: Path
    teacher: Backbone | str = "self"
    orders: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: dict[Setting, Cell] = field(default_factory=dict)
    found: dict[Setting, Line] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def measure(self, place: Bench, settings: Iterable[Setting]) -> None:
        """Run what these settings need at a place, in one pass over its images.

        Args:
            settings: any cells; their model and dataset are replaced by the place's.
        """
        wanted: dict[str, list[Setting]] = {}
        for setting in dict.fromkeys(place.at(setting, "mAP") for setting in settings):
            if setting not in self.found:
                wanted.setdefault(setting.init, []).append(setting)
        for init, several in wanted.items():
            backbone = place.backbone if init == "template" else place.prompted.get(init)
            if backbone is None:
                self.skipped.setdefault(f"{init} prompts", "no learned prompts were given")
            else:
                self._measure(place, backbone, several)

    def _measure(self, place: Bench, backbone: Backbone, settings: Sequence[Setting]) -> None:
        """Run settings that share their prompts."""
        known = [setting for setting in settings if setting.method in list_methods()]
        self.skipped |= {TITLES[s.method]: "not among the methods here" for s in settings if s not in known}
        recipes = {s: Recipe(s.method, dict(s.options), title=TITLES[s.method]) for s in known}
        options = {**self.options, "teacher": self.teacher, "out": self.out}
        found, skipped = run_each(place, backbone, recipes, orders=range(self.orders), **options)
        self.skipped |= {f"{TITLES[s.method]} on {place.model}": why for s, why in skipped.items()}
        for setting, (_, line) in found.items():
            self.found[setting] = line
            first, whole = line.summaries[0], line.map()
            note = "taught by itself" if line.run["teacher"] == "self" else ""
            self.measured[setting] = replace(whole, note=whole.note or note)
            other = {f"mAP by label count: {name}": one.mean_ap for name, one in first.by_count.items()}
            for metric, value in {**other, "seconds": first.result.ms / 1000}.items():
                if not np.isnan(value):
                    self.measured[replace(setting, metric=metric)] = Cell(ours=value, note=note)

    def lines(self, place: Bench, methods: Sequence[str] = ("clip", "tpt", "ml-tta")) -> list[Line]:
        """The results of whole methods at a place, as they were run."""
        settings = [Setting.of(place.model, method, place.key) for method in methods]
        return [self.found[setting] for setting in settings if setting in self.found]


def settings_of(number: int) -> list[Setting]:
    """Everything a table measures."""
    return [cell.setting for cell in load_table(number).cells if cell.setting.dataset != "average"]


def view_settings() -> list[Setting]:
    """Everything the figure of views measures."""
    return [Setting.of("", method, "", views=n) for method in VIEW_METHODS.values() for n in VIEWS]


def paper_tables(number: int, places: Sequence[Bench], done: Reproduction) -> list[Table]:
    """A table of the paper with our numbers in it, and one of ours for what the paper has no place for."""
    printed = {cell.setting for cell in load_table(number).cells}
    own = [place for place in places if not any(place.at(setting) in printed for setting in printed)]
    return [side_by_side(number, done.measured), *([own_table(number, own, done.measured)] if own else [])]


def side_by_side(number: int, measured: Mapping[Setting, Cell] | None = None) -> Table:
    """Table ``number`` of the paper with what we measured filled in; cells we did not run stay empty.

    The average over the five datasets is filled in where all five were measured. What is known about the paper's
    own numbers stands below the table.
    """
    source = load_table(number)
    measured = measured or {}
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in source.cells:
        ours = measured.get(cell.setting) or _average(cell.setting, measured) or Cell()
        rows.setdefault((cell.group, cell.row), []).append(replace(ours, paper=cell.value))
    title = f"Table {number} of the paper: {source.title}"
    filled = tuple(Row(name, tuple(cells), group) for (group, name), cells in rows.items())
    # those that change how a number is read; spelling and prose are told elsewhere
    said = tuple(str(note) for note in source.notes if note.kind in ("average", "disagreement", "inferred"))
    return Table(title, source.columns, filled, said, source.unit, best=_BEST.get(number, "column"))


def _average(setting: Setting, measured: Mapping[Setting, Cell]) -> Cell | None:
    if setting.dataset != "average":
        return None
    parts = [measured.get(replace(setting, dataset=dataset), Cell()).ours for dataset in DATASETS]
    known = [part for part in parts if part is not None]
    return Cell(ours=sum(known) / len(known)) if len(known) == len(DATASETS) else None


def view_figure(place: Bench, done: Reproduction) -> tuple[str, Table]:
    """mAP over the number of views, as a plot and as a table."""
    series = {}
    for name, method in VIEW_METHODS.items():
        settings = [Setting.of(place.model, method, place.key, views=n) for n in VIEWS]
        if done.measured.keys() >= set(settings):
            series[name] = [done.measured[setting] for setting in settings]
    title = f"Number of views, {place.title}"
    curves = {name: [cell.ours for cell in cells] for name, cells in series.items()}
    # a note below says what a cell's would say 8 times
    rows = tuple(Row(name, tuple(replace(cell, note="") for cell in cells)) for name, cells in series.items())
    notes = ("RLCF is taught by the model itself.",) if done.teacher == "self" and "RLCF" in series else ()
    plot = lines(title, VIEWS, curves, "views of an image", "mAP")
    return plot, Table(title, tuple(map(str, VIEWS)), rows, notes, best="row")


def own_table(number: int, places: Sequence[Bench], measured: Mapping[Setting, Cell]) -> Table:
    """A paper's table laid out for models and images of ours."""
    source = load_table(number)
    block = _block(source.cells)
    columns = tuple(dict.fromkeys(cell.column for cell in block))
    if len(columns) == 1 or number in (1, 2, 5, 6):
        heads = tuple(place.title for place in places)
        rows = [Row(c.row, tuple(measured.get(p.at(c.setting), Cell()) for p in places)) for c in block]
    else:
        heads, rows = columns, []
        for place in places:
            names = dict.fromkeys(cell.row for cell in block)
            for name in names:
                own = {c.column: measured.get(place.at(c.setting), Cell()) for c in block if c.row == name}
                label, group = (place.title, "") if len(names) == 1 else (name, place.title)
                rows.append(Row(label, tuple(own.get(column, Cell()) for column in columns), group))
    title = f"Table {number}, our models and images: {source.title}"
    notes = ("Seconds are those beyond encoding the views.",) * (number == 4)
    best, digits = _BEST.get(number, "column"), 3 if number == 4 else 2
    return Table(title, heads, tuple(rows), notes, source.unit, digits=digits, best=best)


def _block(cells: Sequence[PaperCell]) -> list[PaperCell]:
    """The cells of the model and dataset that a table has most of: what it measures, whatever it measures it on."""
    apart: dict[tuple[str, str], list[PaperCell]] = {}
    for cell in cells:
        if cell.setting.dataset != "average":
            apart.setdefault((cell.setting.model, cell.setting.dataset), []).append(cell)
    return max(apart.values(), key=len)
