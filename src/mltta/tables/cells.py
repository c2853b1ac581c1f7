"""A table of numbers, the paper's beside ours: plain data, ready to be rendered or stored."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from mltta.errors import ConfigError


@dataclass(frozen=True)
class Cell:
    """One place of a table: the paper's number, ours, and the interval ours lies in. None is "not measured"."""

    paper: float | None = None
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        for name in ("paper", "ours", "low", "high"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigError(f"A table cell has {name}={value}; give None for what was not measured.")
        if (self.low is None) != (self.high is None):
            raise ConfigError(f"A table cell has low={self.low} and high={self.high}; give both or neither.")

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where both are known."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@dataclass(frozen=True)
class Row:
    """One line of a table; rows of one ``group`` stand together and are compared with each other."""

    name: str
    cells: tuple[Cell, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """A titled grid of cells.

    ``best`` says where our highest number is set in bold: within a column (and group), within a row, or nowhere.
    In the columns that ``lower_is_better`` names, such as a time, it is the lowest.
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
                raise ConfigError(
                    f"Row {row.name!r} of table {self.title!r} has {len(row.cells)} cells "
                    f"for {len(self.columns)} columns; give one cell a column, Cell() where there is nothing."
                )

    def to_json(self) -> str:
        """The table as JSON; cells hold only the fields that are set."""
        rows = [
            {"group": row.group, "name": row.name, "cells": [_set_fields(cell) for cell in row.cells]}
            for row in self.rows
        ]
        names = ("title", "unit", "digits", "best", "lower_is_better", "columns", "notes")
        head = {name: getattr(self, name) for name in names}
        return json.dumps({**head, "rows": rows}, ensure_ascii=False, indent=1)


def _set_fields(cell: Cell) -> dict[str, Any]:
    pairs = ((field.name, getattr(cell, field.name)) for field in fields(cell))
    return {name: value for name, value in pairs if value not in (None, "")}
