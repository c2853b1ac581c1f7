"""The paper's tables and figures with our numbers in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mltta.reproduction.paper import PaperCell, Setting, load_table
from mltta.reproduction.rerun import VIEW_METHODS, VIEWS, Bench, Reproduction
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.plots import lines

DATASETS = ("coco2014", "coco2017", "voc2007", "voc2012", "nuswide")  # what the paper's average is over

# Table 4 mixes seconds with mAP, Table 7 compares along its rows.
_BEST: dict[int, Literal["column", "row", ""]] = {4: "", 7: "row"}


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
    return Table(
        f"Table {number} of the paper: {source.title}",
        source.columns,
        tuple(Row(name, tuple(cells), group) for (group, name), cells in rows.items()),
        # notes that change how a number is read; spelling and prose are told elsewhere
        tuple(str(note) for note in source.notes if note.kind in ("average", "disagreement", "inferred")),
        source.unit,
        best=_BEST.get(number, "column"),
    )


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
    return Table(
        f"Table {number}, our models and images: {source.title}",
        heads,
        tuple(rows),
        ("Seconds are those beyond encoding the views.",) * (number == 4),
        source.unit,
        digits=3 if number == 4 else 2,
        best=_BEST.get(number, "column"),
    )


def _block(cells: Sequence[PaperCell]) -> list[PaperCell]:
    """The cells of the model and dataset that a table has most of: what it measures, whatever it measures it on."""
    apart: dict[tuple[str, str], list[PaperCell]] = {}
    for cell in cells:
        if cell.setting.dataset != "average":
            apart.setdefault((cell.setting.model, cell.setting.dataset), []).append(cell)
    return max(apart.values(), key=len)
