"""The paper's tables and figures with our numbers in them, each with the conditions it was measured under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mltta.reproduction.conditions import condition_notes
from mltta.reproduction.paper import PaperCell, Setting, load_table
from mltta.reproduction.rerun import Bench, Reproduction
from mltta.reproduction.timing import TIMES
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.plots import lines
from mltta.tables.svg import Drawing

VIEWS = (1, 2, 4, 8, 16, 32, 64, 128)
VIEW_METHODS = {"RLCF": "rlcf", "TPT": "tpt", "ML-TTA": "ml-tta"}
DATASETS = ("coco2014", "coco2017", "voc2007", "voc2012", "nuswide")  # what the paper's average is over
TIMED = (
    "Adapting time: median seconds per image, one image at a time, from ready views to scores. The paper does not say "
    "whether its time includes encoding. The released programs encode inside the adaptation step, so the first row "
    "includes it. Making views and generating images are not included."
)

# Table 4 mixes seconds with mAP, Table 7 compares along its rows.
_BEST: dict[int, Literal["column", "row", ""]] = {4: "", 7: "row"}


def cells_of(number: int) -> list[PaperCell]:
    """A table's cells, row by row, with rows of ours: DMN as released, and the time beyond encoding."""
    rows: dict[tuple[str, str], list[PaperCell]] = {}
    for cell in load_table(number).cells:
        rows.setdefault((cell.group, cell.row), []).append(cell)
        if cell.setting.method == "dmn":
            released = replace(cell.setting, options=(("preset", "released"),))
            other = replace(cell, row=f"{cell.row}, as released", setting=released, mark="")
            rows.setdefault((other.group, other.row), []).append(other)
        if cell.setting.metric == TIMES[0]:
            timed = replace(cell.setting, metric=TIMES[1])
            other = replace(cell, row="without encoding (s)", setting=timed, value=None, mark="")
            rows.setdefault((other.group, other.row), []).append(other)
    return [cell for row in rows.values() for cell in row]


def settings_of(number: int) -> list[Setting]:
    """Everything a table measures."""
    return [cell.setting for cell in cells_of(number) if cell.setting.dataset != "average"]


def settings_at(place: Bench, number: int, every: bool = True) -> list[Setting]:
    """What a table measures at a place.

    Args:
        every: all its rows; otherwise only the paper's own cells, if the paper measures on these images with this
            model at all.
    """
    wanted = settings_of(number)
    return [s for s in wanted if place.at(s) == s] if place.printed and not every else wanted


def view_settings() -> list[Setting]:
    """Everything the figure of views measures."""
    return [Setting.of("", method, "", views=n) for method in VIEW_METHODS.values() for n in VIEWS]


def paper_tables(number: int, places: Sequence[Bench], done: Reproduction, every: bool = True) -> list[Table]:
    """A table of the paper with our numbers in it, and one of ours for what the paper has no place for."""
    printed = dict.fromkeys(settings_of(number))
    own = [place for place in places if not any(place.at(setting) in printed for setting in printed)]
    own = [place for place in own if every or not place.printed]
    found = [_told(side_by_side(number, done.measured), printed, done)]
    if own:
        asked = [place.at(setting) for place in own for setting in printed]
        found.append(_told(own_table(number, own, done.measured), asked, done))
    return found


def _told(table: Table, settings: Iterable[Setting], done: Reproduction) -> Table:
    """A table with the conditions of its rows."""
    used = dict.fromkeys(replace(setting, metric="mAP") for setting in settings)
    told = condition_notes(done, [setting for setting in used if setting in done.found])
    return replace(table, notes=(*table.notes, *told))


def side_by_side(number: int, measured: Mapping[Setting, Cell] | None = None) -> Table:
    """Table ``number`` of the paper with what we measured filled in; cells we did not run stay empty.

    The average over the five datasets is filled in where all five were measured. What is known about the paper's
    own numbers stands below the table.
    """
    source = load_table(number)
    measured = measured or {}
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells_of(number):
        ours = measured.get(cell.setting) or _average(cell.setting, measured) or Cell()
        rows.setdefault((cell.group, cell.row), []).append(replace(ours, paper=cell.value))
    title = f"Table {number} of the paper: {source.title}"
    filled = tuple(Row(name, tuple(cells), group) for (group, name), cells in rows.items())
    # those that change how a number is read; spelling and prose are told elsewhere
    said = [str(note) for note in source.notes if note.kind in ("average", "disagreement", "inferred")]
    said += [TIMED] * (number == 4)
    best, digits = _BEST.get(number, "column"), 3 if number == 4 else 2
    return Table(title, source.columns, filled, tuple(said), source.unit, digits=digits, best=best)


def _average(setting: Setting, measured: Mapping[Setting, Cell]) -> Cell | None:
    if setting.dataset != "average":
        return None
    parts = [measured.get(replace(setting, dataset=dataset), Cell()).ours for dataset in DATASETS]
    known = [part for part in parts if part is not None]
    return Cell(ours=sum(known) / len(known)) if len(known) == len(DATASETS) else None


def view_figure(place: Bench, done: Reproduction) -> tuple[Drawing, Table]:
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
    plot = lines(title, VIEWS, curves, "views of an image", "mAP")
    table = Table(title, tuple(map(str, VIEWS)), rows, best="row")
    return plot, _told(table, map(place.at, view_settings()), done)


def own_table(number: int, places: Sequence[Bench], measured: Mapping[Setting, Cell]) -> Table:
    """A paper's table laid out for models and images of ours."""
    source = load_table(number)
    block = _block(cells_of(number))
    columns = tuple(dict.fromkeys(cell.column for cell in block))
    if len(columns) == 1 or number in (1, 2, 5, 6):
        heads = tuple(place.title for place in places)
        # Table 1 groups its rows by model, which is in the head here, Table 2 by prompts
        groups = [cell.group if number == 2 else "" for cell in block]
        cells = [tuple(measured.get(place.at(cell.setting), Cell()) for place in places) for cell in block]
        rows = [Row(cell.row, own, group) for cell, own, group in zip(block, cells, groups, strict=True)]
    else:
        heads, rows = columns, []
        for place in places:
            names = dict.fromkeys(cell.row for cell in block)
            for name in names:
                own = {c.column: measured.get(place.at(c.setting), Cell()) for c in block if c.row == name}
                label, group = (place.title, "") if len(names) == 1 else (name, place.title)
                rows.append(Row(label, tuple(own.get(column, Cell()) for column in columns), group))
    title = f"Table {number}, our models and images: {source.title.replace('COCO2014 split', 'Images split')}"
    best, digits = _BEST.get(number, "column"), 3 if number == 4 else 2
    return Table(title, heads, tuple(rows), (TIMED,) * (number == 4), source.unit, digits=digits, best=best)


def _block(cells: Sequence[PaperCell]) -> list[PaperCell]:
    """The cells of the model and dataset that a table has most of: what it measures, whatever it measures it on."""
    apart: dict[tuple[str, str], list[PaperCell]] = {}
    for cell in cells:
        if cell.setting.dataset != "average":
            apart.setdefault((cell.setting.model, cell.setting.dataset), []).append(cell)
    return max(apart.values(), key=len)
