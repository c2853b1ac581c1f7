"""The result of every loader: images of a dataset, their ids and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mltta.errors import ConfigError, DatasetError, LabelError
from mltta.labels import LabelSet
from mltta.labels.sets import label_key

Unlabelled: TypeAlias = Literal["keep", "drop"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images with their labels, in a fixed order.

    Args:
        name: dataset and split, such as "voc2012-val".
        labels: the labels, one per column of ``targets``.
        ids: one unique id per image.
        images: anything that `mltta.images.decode.load_image` accepts, fetched only when indexed.
        targets: (N, C): 1 present, 0 absent, -1 ignored in metrics.
        published: number of images in the published split.
        notes: descriptions of the conventions applied, with counts.
    """

    name: str
    labels: LabelSet
    ids: Sequence[str]
    images: Sequence[Any]
    targets: NDArray[np.int8]
    published: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.targets.shape != (len(self.ids), len(self.labels)) or len(self.images) != len(self.ids):
            raise DatasetError(
                f"{self.name}: {len(self.ids)} ids, {len(self.images)} images and {len(self.labels)} labels do not "
                f"fit targets of shape {self.targets.shape}"
            )
        if not np.isin(self.targets, (-1, 0, 1)).all():
            raise DatasetError(f"{self.name}: targets must be 1 (present), 0 (absent) or -1 (ignored)")
        twice, often = Counter(self.ids).most_common(1)[0] if self.ids else ("", 1)
        if often > 1:
            raise DatasetError(f"{self.name}: the image id {twice!r} occurs more than once")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, indices: slice | Sequence[int] | NDArray[Any]) -> Dataset:
        """Select images: ``select(slice(100))`` for the first hundred, or a list of positions."""
        if not isinstance(indices, slice):
            indices = np.asarray(indices, dtype=None if len(indices) else np.intp)
        kept = np.arange(len(self))[indices].tolist()
        if kept == list(range(len(self))):
            return self
        images: Sequence[Any] = Lazy(self.images.__getitem__, kept)
        if isinstance(self.images, (list, tuple)):
            images = list(images)
        notes = (*self.notes, f"{len(kept):,} of these {len(self):,} images were selected")
        ids = tuple(self.ids[i] for i in kept)
        return replace(self, ids=ids, images=images, targets=self.targets[kept], notes=notes)

    def summary(self) -> str:
        """Describe the dataset in one line."""
        published = "" if self.published is None else f" (published: {self.published:,})"
        published = " (as published)" if self.published == len(self) else published
        present = float((self.targets == 1).sum() / max(len(self), 1))
        head = f"{self.name}: {len(self):,} images{published}, {len(self.labels)} labels, {present:.1f} per image"
        return "; ".join((head, *self.notes))


class Lazy(Sequence[Any]):
    """A sequence whose items are fetched on access."""

    def __init__(self, fetch: Callable[[int], Any], positions: Sequence[int]) -> None:
        self._fetch, self._positions = fetch, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self._fetch, self._positions[index])
        return self._fetch(self._positions[index])


def settle_unlabelled(data: Dataset, unlabelled: Unlabelled) -> Dataset:
    """Keep or drop images without any of the labels, and add a note with their number."""
    if unlabelled not in ("keep", "drop"):
        raise ConfigError(f"unlabelled={unlabelled!r} is neither 'keep' nor 'drop'")
    labelled = (data.targets == 1).any(axis=1)
    count = len(data) - int(labelled.sum())
    if not count:
        return data
    if count == len(data):
        lack = f"none of its {count:,} images has any of the {len(data.labels)} labels"
        raise DatasetError(f"{data.name}: {lack}")
    fate = "are dropped" if unlabelled == "drop" else "count as negatives"
    noted = replace(data, notes=(*data.notes, f"{count:,} images with none of the labels {fate}"))
    return replace(noted.select(labelled), notes=noted.notes) if unlabelled == "drop" else noted


def label_list(names: Sequence[str], source: str) -> LabelSet:
    """Make a label set from names without adding synonyms, which callers do."""
    return replace(LabelSet.of(list(names)), source=source)


def mark(
    rows: Sequence[tuple[str, Sequence[str]]], labels: LabelSet | None, source: str
) -> tuple[LabelSet, NDArray[np.int8]]:
    """Turn each row's label names into a row of targets.

    Args:
        rows: position of the row for messages, and its labels.
        labels: the label set (default: all labels that occur, sorted).
    """
    if labels is None:
        first = {label_key(name): name for _, names in reversed(rows) for name in reversed(names)}
        if not first:
            raise DatasetError(f"{source} lists {len(rows):,} images, but no labels")
        labels = label_list([first[key] for key in sorted(first)], source)  # in the first spelling
    targets = np.zeros((len(rows), len(labels)), dtype=np.int8)
    column = cache(labels.index)
    for row, (where, names) in enumerate(rows):
        try:
            targets[row, [column(name) for name in names]] = 1
        except LabelError as error:
            raise DatasetError(f"{source}, {where}: {error}") from None
    return labels, targets
