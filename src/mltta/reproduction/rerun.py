"""Cells of the paper's tables measured on whatever data and weights there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from mltta.captions import store
from mltta.captions.read import read_texts
from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.errors import ConfigError, MlttaError
from mltta.evaluation.comparison import Line
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.recipes import Recipe, with_variations
from mltta.evaluation.summary import Summary
from mltta.methods import Method, list_methods
from mltta.model.backbone import Backbone
from mltta.reproduction.paper import Setting, tables
from mltta.reproduction.timing import TIMES, adapting_seconds
from mltta.session.question import Question
from mltta.tables.cells import Cell

K = TypeVar("K")
TITLES = {name: name.upper() for name in ("clip", "dmn", "dart", "tda", "tpt", "rlcf", "ml-tta")}
TITLES["difftpt"] = "DiffTPT"


@lru_cache(maxsize=2)
def open_captions(source: CaptionBase | str | None, backbone: Backbone) -> CaptionBase | Literal[False]:
    """The captions of a source in a backbone's space: texts of other backbones are embedded once and kept."""
    if source is None:
        return store.default_captions(backbone)
    if isinstance(source, CaptionBase) or source == store.NONE:
        return store.chosen_captions(source, backbone)
    bases = [CaptionBase.load(folder) for folder in store.base_folders(source)]
    fitting = [base for base in bases if base.fingerprint == backbone.text_fingerprint]
    return (
        fitting[0]
        if fitting
        else store.kept_captions(bases[0].texts if bases else read_texts(source), backbone)
    )


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
    #: a caption base, a file or folder of captions, or "none"; None: the included base
    captions: CaptionBase | str | None = None
    #: folder of images generated for DiffTPT
    variations: str | None = None

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

    @property
    def printed(self) -> bool:
        """Whether the paper has numbers for this model on these images."""
        return any(self.at(cell.setting) == cell.setting for table in tables() for cell in table.cells)

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
    descriptions: Any = None,
    teacher: Backbone | str = "self",
    **options: Any,
) -> tuple[dict[K, tuple[Method, Line]], dict[K, str]]:
    """Measure recipes in one pass over the images: methods with their results, and why others cannot be run.

    Args:
        orders: in which online methods see the images.
        options: of `evaluate`.
    """
    methods: dict[K, Method] = {}
    skipped: dict[K, str] = {}
    asked = {"template": template, "descriptions": descriptions, "teacher": teacher}
    try:
        asked["captions"] = open_captions(place.captions, backbone)
        question = Question(backbone, place.dataset.labels, **asked)
    except MlttaError as error:
        return {}, dict.fromkeys(wanted, str(error))
    for key, recipe in wanted.items():
        try:
            methods[key] = question.method(recipe.method, recipe.preset, **recipe.options)
        except ConfigError as error:
            skipped[key] = str(error)
    if not methods:
        return {}, skipped
    several = {
        key: [replace(wanted[key], order=order) for order in (orders if method.online else (None,))]
        for key, method in methods.items()
    }
    recipes = [recipe for some in several.values() for recipe in some]
    results = iter(evaluate(place.dataset, backbone, recipes, **asked, **options).results)
    found = {}
    for key, some in several.items():
        own = [next(results) for _ in some]
        try:
            found[key] = methods[key], Line(wanted[key].name, tuple(map(Summary, own)))
        except MlttaError as error:  # it has no scores, such as without generated images
            skipped[key] = str(error)
    return found, skipped


@dataclass
class Reproduction:
    """What was measured so far: every cell by its setting, the results behind them, and what could not be run."""

    out: Path
    teacher: Backbone | str = "self"
    orders: int = 3
    preset: str = "paper"
    #: settings by method, instead of the preset's
    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: what prompts and captions call the labels, for the conditions
    words: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: dict[Setting, Cell] = field(default_factory=dict)
    found: dict[Setting, Line] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    #: caption bases in words, by the digest that results have
    bases: dict[str, str] = field(default_factory=lambda: {"none": "none"})

    def measure(self, place: Bench, settings: Iterable[Setting]) -> None:
        """Run what these settings need at a place, in one pass over its images.

        Args:
            settings: any cells; their model and dataset are replaced by the place's.
        """
        wanted: dict[
            str, dict[Setting, set[str]]
        ] = {}  # by their prompts, with the metrics that are asked for
        for setting in map(place.at, settings):
            if setting not in self.measured:
                some = wanted.setdefault(setting.init, {})
                some.setdefault(replace(setting, metric="mAP"), set()).add(setting.metric)
        for init, several in wanted.items():
            backbone = place.backbone if init == "template" else place.prompted.get(init)
            if backbone is None:
                self.skipped.setdefault(f"{init} prompts", "no learned prompts were given")
            else:
                self._measure(place, backbone, several)

    def recipe(self, place: Bench, setting: Setting) -> Recipe:
        """How a cell is measured: the preset, then the user's settings, then what the cell is about."""
        own = {**self.changed.get(setting.method, {}), **dict(setting.options)}
        recipe = Recipe(setting.method, own, own.pop("preset", self.preset), title=TITLES[setting.method])
        return with_variations(recipe, place.dataset.name, place.variations)

    def _measure(self, place: Bench, backbone: Backbone, settings: Mapping[Setting, set[str]]) -> None:
        """Run settings that share their prompts."""
        known = [setting for setting in settings if setting.method in list_methods()]
        self.skipped |= {TITLES[s.method]: "not among the methods here" for s in settings if s not in known}
        recipes = {setting: self.recipe(place, setting) for setting in known}
        options = {**self.options, "teacher": self.teacher, "out": self.out}
        found, skipped = run_each(place, backbone, recipes, orders=range(self.orders), **options)
        self.skipped |= {
            f"{TITLES[s.method]} on {place.model}, {place.key}": why for s, why in skipped.items()
        }
        if found and (base := open_captions(place.captions, backbone)):
            name = "included" if place.captions is None else "given"
            name = Path(place.captions).name if isinstance(place.captions, str) else name
            self.bases[base.digest] = f"{len(base):,} ({name})"
        for setting, (method, line) in found.items():
            self.found[setting] = line
            first, whole = line.summaries[0], line.map()
            if len(line.summaries) == 1:
                first.save()  # with the samples of the interval, which take long
            note = "self-taught" if line.run["teacher"] == "self" else ""
            self.measured[setting] = replace(whole, note=whole.note or note)
            for metric in sorted(settings[setting] - {"mAP", *TIMES}):
                name = metric.removeprefix("mAP by label count: ")
                if not np.isnan(value := first.by_count[name].mean_ap):
                    cell = Cell(None, value, *first.interval_by_count(name), note)
                    self.measured[replace(setting, metric=metric)] = cell
            times = adapting_seconds(method, place.dataset) if settings[setting].intersection(TIMES) else {}
            for metric, value in times.items():
                self.measured[replace(setting, metric=metric)] = Cell(ours=value, note=note)

    def lines(self, place: Bench, methods: Sequence[str] = tuple(TITLES)) -> list[Line]:
        """The results of whole methods at a place, as they were run."""
        settings = [Setting.of(place.model, method, place.key) for method in methods]
        return [self.found[setting] for setting in settings if setting in self.found]
