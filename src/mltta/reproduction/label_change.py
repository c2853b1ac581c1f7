"""The paper's Figure 1a over a whole dataset: what adapting does to the logits of present and absent labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltta.evaluation.comparison import Line
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.plots import bars_by_group
from mltta.tables.svg import Drawing

COLUMNS = ("best true label", "other true labels", "absent labels", "all true labels rise, %")


def changes(first: Line, other: Line) -> tuple[float, ...] | None:
    """Mean changes of the logits against the first method, and how often all true labels rise.

    Only images with two labels or more count, and of methods with two branches their mean. None if there are no such
    images, or the methods do not score the same ones by logits.
    """
    before, after = first.summaries[0].result, other.summaries[0].result
    if "probabilities" in (before.run["emits"], after.run["emits"]):
        return None
    truth = first.summaries[0].targets == 1
    several = truth.sum(axis=1) >= 2
    if not several.any() or not np.array_equal(before.scored, after.scored):
        return None
    start, positive = before.branches().mean(axis=1)[several], truth[several]
    top = start == np.where(positive, start, -np.inf).max(axis=1, keepdims=True)
    change = after.branches().mean(axis=1)[several] - start
    masks = positive & top, positive & ~top, ~positive
    means = [float(change[mask].mean()) if mask.any() else 0.0 for mask in masks]
    return *means, 100 * float((np.where(positive, change, np.inf).min(axis=1) > 0).mean())


def change_figure(found: Sequence[Line], where: str) -> tuple[Drawing, Table]:
    """Changes of all methods against the first, as a plot and as a table."""
    measured = {line.title: changes(found[0], line) for line in found[1:]}
    known = {name: own for name, own in measured.items() if own is not None}
    bars = {name: own[:3] for name, own in known.items()}
    title = f"Change of logits against {found[0].title}, {where}"
    rows = tuple(Row(name, tuple(Cell(ours=value) for value in own)) for name, own in known.items())
    images = int(((found[0].summaries[0].targets == 1).sum(axis=1) >= 2).sum())
    notes = [f"{images:,} images with two labels or more. Logits are the mean over a method's branches."]
    lack = ", ".join(name for name in measured if name not in known)
    notes += [f"Without {lack}: no logits, or not of the same images."] * bool(lack)
    table = Table(title, COLUMNS, rows, tuple(notes), "logits", best="")
    return bars_by_group(title, COLUMNS[:3], bars, "change of the logit"), table
