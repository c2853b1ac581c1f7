"""Tables of numbers, the paper's and ours: plain data for storage, and a layout for rendering."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import groupby, product
from typing import Literal

from mltta.errors import ConfigError

Source = Literal["paper", "ours"]


@dataclass(frozen=True)
class Cell:
    """A table cell: the paper's number, ours, and our confidence interval. None means not measured."""

    paper: float | None = None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("paper", "ours", "low", "high"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigError(f"A table cell has {name}={value}; use None for missing values.")
        if (self.low is None) != (self.high is None):
            raise ConfigError(f"A table cell has low={self.low} and high={self.high}; give both or neither.")

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, if both are known."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@dataclass(frozen=True)
class Row:
    """A row of a table; rows with the same ``group`` are adjacent and compared with each other."""

    name: str
    cells: tuple[Cell, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A titled grid of cells.

    ``best`` selects where our highest number is bold: within a column (and group), within a row, or nowhere.
    In the columns of ``lower_is_better``, such as times, it is the lowest.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    unit: str = "mAP"
    digits: int = 2
    best: Literal["column", "row", ""] = "column"
    lower_is_better: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                found = f"Row {row.name!r} of table {self.title!r} has {len(row.cells)} cells"
                todo = "give one cell per column, Cell() if empty."
                raise ConfigError(f"{found} for {len(self.columns)} columns; {todo}")

    def to_json(self) -> str:
        """JSON for ``from_json``; cells contain only the fields that are set."""
        held = asdict(self)
        for row in held["rows"]:
            cells = map(dict.items, row["cells"])
            row["cells"] = [{name: value for name, value in own if value not in (None, "")} for own in cells]
        return json.dumps(held, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Table:
        """Parse a table written by ``to_json``."""
        try:
            held = json.loads(text)
            held |= {name: tuple(held[name]) for name in ("columns", "notes", "lower_is_better")}
            rows = [row | {"cells": tuple(Cell(**cell) for cell in row["cells"])} for row in held.pop("rows")]
            return cls(rows=tuple(Row(**row) for row in rows), **held)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"Not a table in mltta's JSON format: {error}.") from error


@dataclass(frozen=True)
class GridCell:
    """A number as text, the text in brackets, whether it is the best, and its footnote."""

    number: str = ""
    aside: str = ""
    best: bool = False
    footnote: str = ""


@dataclass(frozen=True)
class Grid:
    """A table's layout: columns with their sources, rows of cells in groups, footnotes by letter."""

    heads: tuple[tuple[str, tuple[Source, ...]], ...]
    #: whether sources are labelled in a second header row
    split: bool
    groups: tuple[tuple[str, tuple[tuple[str, tuple[GridCell, ...]], ...]], ...]
    remarks: tuple[tuple[str, str], ...]  # (letter or "", text)

    @property
    def width(self) -> int:
        """Number of cells in a row."""
        return sum(len(sources) for _, sources in self.heads)


def lay_out(table: Table) -> Grid:
    """Lay out a table: a column with numbers of both the paper and us is split in two."""
    cells = [cell for row in table.rows for cell in row.cells]
    sources = [_sources([row.cells[column] for row in table.rows]) for column in range(len(table.columns))]
    used = {source for column in sources for source in column}
    notes = dict.fromkeys(cell.note for cell in cells if cell.note)  # distinct, in order of appearance
    letters = {note: _letter(index) for index, note in enumerate(notes)}
    best = _best(table)

    def line(index: int) -> tuple[str, tuple[GridCell, ...]]:
        row = table.rows[index]
        return row.name, tuple(
            _grid_cell(cell, source, (index, column) in best, table.digits, letter)
            for column, cell in enumerate(row.cells)
            for source in sources[column]
            for letter in [letters.get(cell.note, "") if source == sources[column][-1] else ""]
        )

    groups = tuple((name, tuple(map(line, members))) for name, members in _groups(table))
    remarks = [(letter, note) for note, letter in letters.items()]
    if used == {"paper"}:
        remarks.append(("", "All numbers are the paper's."))
    elif any(cell.difference is not None for cell in cells):
        interval = ", and its 95% interval over images" if any(cell.low is not None for cell in cells) else ""
        remarks.append(("", f"In brackets: ours minus the paper's{interval}."))
    heads = tuple(zip(table.columns, sources, strict=True))
    return Grid(heads, len(used) > 1, groups, (*remarks, *(("", note) for note in table.notes)))


def heading(table: Table) -> str:
    """The title with its unit."""
    return f"{table.title}, {table.unit}" if table.unit else table.title


def _sources(cells: list[Cell]) -> tuple[Source, ...]:
    paper = any(cell.paper is not None for cell in cells)
    ours = any(cell.ours is not None for cell in cells)
    return ("paper", "ours") if paper and ours else ("paper",) if paper else ("ours",)


def _groups(table: Table) -> list[tuple[str, list[int]]]:
    """Adjacent rows of the same group: its name and their indices."""
    positions = groupby(range(len(table.rows)), key=lambda index: table.rows[index].group)
    return [(name, list(members)) for name, members in positions]


def _best(table: Table) -> set[tuple[int, int]]:
    """Positions of our best numbers, if at least two are compared."""
    compared: dict[tuple[int, int], dict[tuple[int, int], float]] = defaultdict(dict)
    for number, (_, members) in enumerate(_groups(table)):
        for row, column in product(members, range(len(table.columns))):
            ours = table.rows[row].cells[column].ours
            if ours is not None and table.best:
                among = (row, -1) if table.best == "row" else (number, column)
                compared[among][row, column] = round(ours, table.digits)
    found: set[tuple[int, int]] = set()
    for (_, column), printed in compared.items():
        lower = column >= 0 and table.columns[column] in table.lower_is_better
        best = (min if lower else max)(printed.values())
        if len(printed) > 1:
            found |= {place for place, number in printed.items() if number == best}
    return found


def _grid_cell(cell: Cell, source: Source, best: bool, digits: int, letter: str = "") -> GridCell:
    """A number of a cell; ours includes the difference between the rounded numbers, and its interval."""
    value = cell.ours if source == "ours" else cell.paper
    if value is None:
        return GridCell(footnote=letter)
    aside = []
    if source == "ours" and cell.paper is not None:
        difference = round(round(value, digits) - round(cell.paper, digits), digits)
        aside.append(_number(difference, digits, "+" if difference else ""))
    if source == "ours" and cell.low is not None and cell.high is not None:
        fewer, sign, origin = max(digits - 1, 0), "" if cell.paper is None else "+", cell.paper or 0.0
        low, high = (_number(end - origin, fewer, sign) for end in (cell.low, cell.high))
        aside.append(f"{low} to {high}")
    return GridCell(_number(value, digits), ", ".join(aside), best and source == "ours", letter)


def _number(value: float, digits: int, sign: str = "") -> str:
    return f"{value:{sign}.{digits}f}".replace("-", "−")


def _letter(index: int) -> str:
    """Footnote letters: a, b, … z, aa, ab, …"""
    before, last = divmod(index, 26)
    return (_letter(before - 1) if before else "") + chr(ord("a") + last)
