"""Labels given by name, row by row, become a label set and targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mltta.errors import DatasetError, LabelError
from mltta.labels import LabelSet


def same_label(name: str) -> str:
    """Return what makes two names the same label: case, underscores and spaces make no difference."""
    return " ".join(name.replace("_", " ").split()).casefold()


def label_list(names: Sequence[str], source: str) -> LabelSet:
    """Make a label set of names as they are; whoever asks about it adds the synonyms that the library knows."""
    return replace(LabelSet.of(list(names)), source=source)


def mark(
    rows: Sequence[tuple[str, Sequence[str]]], labels: LabelSet | None, source: str
) -> tuple[LabelSet, NDArray[np.int8]]:
    """Turn each row's label names into a row of targets.

    Args:
        rows: where the row stands, for messages, and its labels.
        labels: the labels there are; without them, all that occur, sorted.
    """
    if labels is None:
        seen = _seen(name for _, names in rows for name in names)
        if not seen:
            raise DatasetError(f"{source} lists {len(rows):,} images and not one label")
        labels = label_list(seen, source)
    targets = np.zeros((len(rows), len(labels)), dtype=np.int8)
    column: dict[str, int] = {}
    for row, (where, names) in enumerate(rows):
        for name in names:
            if name not in column:
                try:
                    column[name] = labels.index(name)
                except LabelError as error:
                    raise DatasetError(f"{source}, {where}: {error}") from None
            targets[row, column[name]] = 1
    return labels, targets


def _seen(names: Iterable[str]) -> list[str]:
    """All labels that occur, sorted, each in the spelling it has first."""
    first: dict[str, str] = {}
    for name in dict.fromkeys(names):
        first.setdefault(same_label(name), name)
    return [first[key] for key in sorted(first)]
