"""How a table is laid out, whatever the format: which sub-columns, what each place says, where a footnote goes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from mltta.tables.cells import Cell, Table

Source = Literal["paper", "ours"]


@dataclass(frozen=True)
class GridCell:
    """A number as text, what follows it in brackets, whether it is the best, its footnote."""

    number: str = ""
    aside: str = ""
    best: bool = False
    footnote: str = ""


@dataclass(frozen=True)
class Head:
    """A column and the sources shown for it; ``named`` says whether the sources need to be told apart."""

    name: str
    sources: tuple[Source, ...]
    named: bool


@dataclass(frozen=True)
class Grid:
    """A table laid out: rows of cells under heads, in groups, with footnotes by letter."""

    heads: tuple[Head, ...]
    groups: tuple[tuple[str, tuple[tuple[str, tuple[GridCell, ...]], ...]], ...]
    remarks: tuple[tuple[str, str], ...]  # (letter or "", text)

    @property
    def width(self) -> int:
        """Number of cells in a row."""
        return sum(len(head.sources) for head in self.heads)

    @property
    def split(self) -> bool:
        """Whether the heads need a second line that names the sources."""
        return any(head.named for head in self.heads)


def lay_out(table: Table) -> Grid:
    """The grid of a table: a column splits in two where both the paper and we have numbers."""
    sources = [_sources(table, column) for column in range(len(table.columns))]
    used = {source for column in sources for source in column}
    heads = tuple(
        Head(name, column, len(used) > 1) for name, column in zip(table.columns, sources, strict=True)
    )
    letters: dict[str, str] = {}  # of the distinct notes of cells, in order of appearance
    best = _best(table)
    groups = []
    for name, members in _groups(table):
        lines = []
        for index in members:
            row: list[GridCell] = []
            for column, cell in enumerate(table.rows[index].cells):
                letter = letters.setdefault(cell.note, _letter(len(letters))) if cell.note else ""
                row += _grid_cells(cell, sources[column], (index, column) in best, table.digits, letter)
            lines.append((table.rows[index].name, tuple(row)))
        groups.append((name, tuple(lines)))
    remarks = [(letter, note) for note, letter in letters.items()]
    cells = [cell for row in table.rows for cell in row.cells]
    if used == {"paper"}:
        remarks.append(("", "All numbers are the paper's."))
    elif any(cell.difference is not None for cell in cells):
        interval = any(cell.low is not None for cell in cells)
        remarks.append(
            ("", f"In brackets: ours minus the paper's{', then the interval of ours' if interval else ''}.")
        )
    return Grid(heads, tuple(groups), (*remarks, *(("", note) for note in table.notes)))


def heading(table: Table) -> str:
    """The title with its unit."""
    return f"{table.title}, {table.unit}" if table.unit else table.title


def _sources(table: Table, column: int) -> tuple[Source, ...]:
    cells = [row.cells[column] for row in table.rows]
    paper = any(cell.paper is not None for cell in cells)
    ours = any(cell.ours is not None for cell in cells)
    return ("paper", "ours") if paper and ours else ("paper",) if paper else ("ours",)


def _groups(table: Table) -> list[tuple[str, list[int]]]:
    """Neighbouring rows of one group: its name and their positions."""
    positions = groupby(range(len(table.rows)), key=lambda index: table.rows[index].group)
    return [(name, list(members)) for name, members in positions]


def _best(table: Table) -> set[tuple[int, int]]:
    """Where our best number stands, among at least two that are compared."""
    rows, columns = range(len(table.rows)), range(len(table.columns))
    compared: list[list[tuple[int, int]]] = []
    if table.best == "row":
        compared = [[(row, column) for column in columns] for row in rows]
    elif table.best == "column":
        compared = [[(row, column) for row in group] for _, group in _groups(table) for column in columns]
    found: set[tuple[int, int]] = set()
    for places in compared:
        printed = {
            (row, column): round(ours, table.digits)
            for row, column in places
            if (ours := table.rows[row].cells[column].ours) is not None
        }
        if len(printed) > 1:
            lower = table.best == "column" and table.columns[places[0][1]] in table.lower_is_better
            best = (min if lower else max)(printed.values())
            found |= {place for place, number in printed.items() if number == best}
    return found


def _grid_cells(
    cell: Cell, sources: tuple[Source, ...], best: bool, digits: int, letter: str
) -> list[GridCell]:
    """A cell's numbers; its footnote stands after the last of them."""
    found = []
    for source in sources:
        ours = source == "ours"
        value = cell.ours if ours else cell.paper
        number = "" if value is None else _number(value, digits)
        footnote = letter if source == sources[-1] else ""
        found.append(GridCell(number, _aside(cell, digits) if ours else "", best and ours, footnote))
    return found


def _number(value: float, digits: int, sign: str = "") -> str:
    return f"{value:{sign}.{digits}f}".replace("-", "−")


def _aside(cell: Cell, digits: int) -> str:
    """What follows our number: the difference a reader gets by subtracting the printed numbers, the interval."""
    parts = []
    if cell.ours is not None and cell.paper is not None:
        difference = round(round(cell.ours, digits) - round(cell.paper, digits), digits)
        parts.append(_number(difference, digits, "+" if difference else ""))
    if cell.ours is not None and cell.low is not None and cell.high is not None:
        fewer = max(digits - 1, 0)
        parts.append(f"{_number(cell.low, fewer)} to {_number(cell.high, fewer)}")
    return ", ".join(parts)


def _letter(index: int) -> str:
    """a, b, … z, aa, ab, …"""
    before, last = divmod(index, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)
