"""Every method there is on one protocol: what it scores, what it costs, and what was published of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from mltta.evaluation.comparison import RECONSTRUCTED, Line
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.results import Scoring
from mltta.methods import list_methods, method_class
from mltta.model.backbone import Backbone
from mltta.reproduction.rerun import Bench, run_each
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.plots import pareto
from mltta.tables.svg import Drawing

_PUBLISHED = Path(__file__).parents[1] / "assets" / "paper" / "frontier.json"
#: the family's best foot forward: windows of one larger pass instead of crops
LOCAL = ("zero", "tpt", "c-tpt", "ml-tta", "boostadapter", "dpe", "reta")
#: and several templates, for those that tune no prompt and are used with one
SEVERAL = ("clip", "zero", "tda", "dmn", "boostadapter", "dpe", "bcp", "concepts", "piaa")
TEMPLATES = "simple"
COLUMNS = ("mAP", "mAP softmax", "mAP z-score", "F1 of sets", "views", "ms per image", "state, MB")
MAP: dict[Scoring, str] = {"raw": "map", "softmax": "map_softmax", "z-score": "map_z_score"}


@dataclass(frozen=True)
class Entry:
    """A line of the frontier: a method as it is, on windows, or with several templates."""

    method: str
    look: str = ""
    template: str | None = None

    @property
    def title(self) -> str:
        said = [self.look] * bool(self.look) + [f"{self.template} templates"] * bool(self.template)
        return self.method + (f" ({', '.join(said)})" if said else "")

    @property
    def name(self) -> str:
        """The title, marked if the method is a reconstruction."""
        return self.title + (" †" if method_class(self.method).reconstruction else "")

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.method, {"look": self.look} if self.look else {}, title=self.title)


@dataclass
class Frontier:
    """What was measured at one place, and why the rest was not."""

    place: Bench
    lines: dict[Entry, Line] = field(default_factory=dict)
    costs: dict[Entry, float] = field(default_factory=dict)
    skipped: dict[Entry, str] = field(default_factory=dict)


def entries(only: Sequence[str] = ()) -> list[Entry]:
    """Every method there is, or those named, each as often as it has ways to look."""
    found: list[Entry] = []
    for name in only or list_methods():
        found.append(Entry(method_class(name).name))
        found += [Entry(name, "local")] * (name in LOCAL)
        found += [Entry(name, "", TEMPLATES)] * (name in SEVERAL)
        found += [Entry(name, "local", TEMPLATES)] * (name in LOCAL and name in SEVERAL)
    return found


def measure(
    place: Bench,
    wanted: Sequence[Entry],
    out: Path,
    *,
    teacher: Backbone | str = "self",
    orders: int = 3,
    **options: Any,
) -> Frontier:
    """Run what the model allows; entries with the same templates share one encoding."""
    found = Frontier(place)
    options |= {"teacher": teacher, "out": out, "orders": range(orders) if orders > 1 else (None,)}
    for template in dict.fromkeys(entry.template for entry in wanted):
        recipes = {entry: entry.recipe for entry in wanted if entry.template == template}
        measured, skipped = run_each(place, place.backbone, recipes, template=template, **options)
        found.lines |= {entry: line for entry, (_, line) in measured.items()}
        found.costs |= {entry: method.price for entry, (method, _) in measured.items()}
        found.skipped |= skipped
    return found


def frontier_table(found: Frontier) -> Table:
    """Every scoring, the price, the time and the memory of each entry; what could not be run stays empty."""
    place, rows = found.place, []
    for entry, line in sorted(found.lines.items(), key=lambda one: -one[1].mean("map_z_score")):
        cells = [Cell(ours=line.mean(name), note=line.spread(name)) for name in MAP.values()]
        cells[0] = replace(cells[0], paper=_published_at(place, entry))
        cells += [Cell(ours=value) for value in (line.f1, found.costs[entry], line.ms, line.state)]
        rows.append(Row(entry.name, tuple(cells)))
    rows += [Row(entry.name, (Cell(),) * len(COLUMNS)) for entry in found.skipped]
    notes = [
        f"{place.title}, {len(place.dataset.labels)} labels.",
        *[RECONSTRUCTED] * any(row.name.endswith("†") for row in rows),
        "A view is a pass of the model's own size; a teacher's passes and what is done beyond encoding are not in it. "
        "Milliseconds are those beyond encoding.",
        *(f"{entry.title} was not run: {why}" for entry, why in found.skipped.items()),
    ]
    title = f"The frontier, {place.title}"
    return Table(title, COLUMNS, tuple(rows), tuple(notes), lower_is_better=COLUMNS[-3:])


def frontier_plot(found: Frontier, scoring: Scoring = "z-score") -> Drawing:
    """mAP over price, those that nothing cheaper beats joined by a line."""
    lines = found.lines.items()
    points = {entry.name: (found.costs[entry], line.mean(MAP[scoring])) for entry, line in lines}
    title = f"mAP ({scoring}) over price, {found.place.title}"
    return pareto(title, points, "views encoded for an image", f"mAP, {scoring}")


@cache
def _published() -> dict[str, Any]:
    return dict(json.loads(_PUBLISHED.read_text(encoding="utf-8")))


def _published_at(place: Bench, entry: Entry) -> float | None:
    """The first number printed of a method as it is on these very images, if there is one."""
    if entry != Entry(entry.method) or not place.published:
        return None
    rows = [x for x in _published()["rows"] if (x["method"], x["model"]) == (entry.method, place.model)]
    found = (row["values"][place.dataset_name] for row in rows if place.dataset_name in row["values"])
    return next(map(float, found), None)


def published_table() -> Table:
    """What was published, each number with its protocol in words below: columns of protocols must not be mixed."""
    data = _published()
    columns: dict[str, str] = data["columns"]
    numbers = {name: i for i, name in enumerate(data["protocols"], start=1)}
    rows = []
    for row in sorted(data["rows"], key=lambda row: str(row["model"])):
        cells = tuple(Cell(row["values"].get(name)) for name in columns)
        rows.append(Row(f"{row['title']} [{numbers[row['protocol']]}]", cells, row["model"]))
    notes = tuple(f"[{number}] {data['protocols'][name]}" for name, number in numbers.items())
    notes += ("ZERO and C-TPT: no multi-label figure was found.",)
    title = "Published numbers, each on its own protocol"
    return Table(title, tuple(columns.values()), tuple(rows), notes, best="")
