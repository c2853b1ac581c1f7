"""The paper's tables, number for number, what is odd about them, and the claims made in its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mltta.errors import ConfigError

_ASSETS = Path(__file__).parents[1] / "assets" / "paper"
_MARKS: dict[str, Literal["", "best", "second"]] = {"-": "", "b": "best", "u": "second"}

#: What an ml-tta row uses unless it says otherwise: an option with this value does not set a run apart.
DEFAULTS: Mapping[str, object] = {
    "views": 64,
    "captions_per_view": 16,
    "view_prompt": True,
    "caption_prompt": True,
    "bind": True,
    "objective": "mean",
}


@dataclass(frozen=True)
class Setting:
    """What a number was measured on. Equal settings are the same experiment, here and in the paper.

    >>> Setting.of("RN50", "ml-tta", "coco2014", captions_per_view=16) == Setting.of("RN50", "ml-tta", "coco2014")
    True
    """

    model: str
    method: str
    dataset: str
    metric: str = "mAP"
    init: str = "template"
    options: tuple[tuple[str, object], ...] = ()

    @classmethod
    def of(
        cls,
        model: str,
        method: str,
        dataset: str,
        metric: str = "mAP",
        init: str = "template",
        **options: object,
    ) -> Setting:
        """A setting with its options sorted, those at the paper's default left out."""
        known = DEFAULTS.items() if method == "ml-tta" else ()
        kept = sorted(item for item in options.items() if item not in known)
        return cls(model, method, dataset, metric, init, tuple(kept))


@dataclass(frozen=True)
class PaperCell:
    """One printed number, where it stands and what it measures."""

    table: int
    group: str
    row: str
    column: str
    setting: Setting
    value: float | None  # None in rows of ours
    mark: Literal["", "best", "second"] = ""  # printed bold, or underlined
    episodic: bool | None = None  # None where the table does not say


@dataclass(frozen=True)
class Note:
    """Something a reader of the paper's numbers should know. ``table`` is None for the text outside tables."""

    table: int | None
    cell: str
    kind: Literal["average", "disagreement", "inferred", "mark", "prose", "spelling"]
    what: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.what}"


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper; cells in reading order."""

    number: int
    title: str
    unit: str
    columns: tuple[str, ...]
    cells: tuple[PaperCell, ...]
    notes: tuple[Note, ...]
    inferred: tuple[str, ...] = ()  # coordinates the paper does not print


@dataclass(frozen=True)
class Claim:
    """A statement of the paper's text, what measures it, and whether the paper's own numbers bear it out."""

    id: str
    claim: str
    where: str
    measured_by: tuple[str, ...]
    in_paper: Literal["holds", "partly", "contradicted", "figure only"]
    because: str


def load_table(number: int) -> PaperTable:
    """Table ``number`` of the paper, 1 to 7."""
    if 1 <= number <= len(tables()):
        return tables()[number - 1]
    raise ConfigError(f"The paper has no table {number}; it has tables 1 to {len(tables())}.")


@cache
def tables() -> tuple[PaperTable, ...]:
    """All tables of the paper."""
    return tuple(_table(entry) for entry in _read("tables.json"))


@cache
def notes() -> tuple[Note, ...]:
    """All notes: averages and cells that disagree, marks, inferred settings, text that its table contradicts."""
    return tuple(Note(**entry) for entry in _read("notes.json"))


@cache
def claims() -> tuple[Claim, ...]:
    """The claims of the paper's text, in our words."""
    read = _read("claims.json")
    return tuple(Claim(**{**entry, "measured_by": tuple(entry["measured_by"])}) for entry in read)


def _table(entry: dict[str, Any]) -> PaperTable:
    """A cell's coordinates are those of its table, its row and its column together."""
    cells = []
    for row in entry["rows"]:
        for column, value, mark in zip(entry["columns"], row["values"], row["marks"], strict=True):
            at = {**entry["at"], **row["at"], **column["at"]}
            setting = Setting.of(**at.pop("options", {}), **at)
            where = entry["number"], row.get("group", ""), row["name"], column["name"]
            cells.append(PaperCell(*where, setting, value, _MARKS[mark], row.get("episodic")))
    columns = tuple(column["name"] for column in entry["columns"])
    said = tuple(note for note in notes() if note.table == entry["number"])
    about = entry["number"], entry["title"], entry["unit"]
    return PaperTable(*about, columns, tuple(cells), said, tuple(entry["inferred"]))


def _read(name: str) -> Any:
    return json.loads((_ASSETS / name).read_text(encoding="utf-8"))
