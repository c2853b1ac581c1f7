"""The paper's tables with our numbers beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from mltta.reproduction.paper import PaperCell, PaperTable, Setting, load_table
from mltta.tables.cells import Cell, Row, Table

DATASETS = ("coco2014", "coco2017", "voc2007", "voc2012", "nuswide")  # what the paper's average is over

# Table 4 mixes seconds with mAP, Table 7 compares along its rows.
_BEST: dict[int, Literal["column", "row", ""]] = {4: "", 7: "row"}


def side_by_side(number: int, measured: Mapping[Setting, Cell] | None = None) -> Table:
    """Table ``number`` of the paper with what we measured filled in; cells we did not run stay empty.

    The average over the five datasets is filled in where all five were measured. What is known about the paper's
    own numbers stands below the table.
    """
    source = load_table(number)
    measured = measured or {}
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in source.cells:
        rows.setdefault((cell.group, cell.row), []).append(_filled(cell, measured))
    return Table(
        f"Table {number} of the paper: {source.title}",
        source.columns,
        tuple(Row(name, tuple(cells), group) for (group, name), cells in rows.items()),
        _remarks(source),
        source.unit,
        best=_BEST.get(number, "column"),
    )


def _filled(cell: PaperCell, measured: Mapping[Setting, Cell]) -> Cell:
    ours = measured.get(cell.setting) or _average(cell.setting, measured) or Cell()
    return replace(ours, paper=cell.value)


def _average(setting: Setting, measured: Mapping[Setting, Cell]) -> Cell | None:
    if setting.dataset != "average":
        return None
    parts = [measured.get(replace(setting, dataset=dataset), Cell()).ours for dataset in DATASETS]
    known = [part for part in parts if part is not None]
    return Cell(ours=sum(known) / len(known)) if len(known) == len(DATASETS) else None


def _remarks(source: PaperTable) -> tuple[str, ...]:
    """The notes that change how a number is read; spelling and prose are told elsewhere."""
    return tuple(str(note) for note in source.notes if note.kind in ("average", "disagreement", "inferred"))
