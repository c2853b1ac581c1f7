"""What every loader returns: the images of a benchmark, their ids and which labels each one carries."""

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
        labels: the labels, one a column of ``targets``.
        ids: one id an image, all different.
        images: whatever `mltta.images.decode.load_image` takes, fetched only when indexed.
        targets: (N, C): 1 present, 0 absent, -1 left out of the metrics.
        published: number of images in the published split.
        notes: the conventions applied, in words, with counts.
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
            raise DatasetError(f"{self.name}: targets must be 1 (present), 0 (absent) or -1 (left out)")
        twice, often = Counter(self.ids).most_common(1)[0] if self.ids else ("", 1)
        if often > 1:
            raise DatasetError(f"{self.name}: the image id {twice!r} occurs more than once")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, indices: slice | Sequence[int] | NDArray[Any]) -> Dataset:
        """Keep some of the images: ``select(slice(100))`` the first hundred, or a list of positions."""
        if not isinstance(indices, slice):
            indices = np.asarray(indices, dtype=None if len(indices) else np.intp)
        kept = np.arange(len(self))[indices].tolist()
        if kept == list(range(len(self))):
            return self
        images: Sequence[Any] = Lazy(self.images.__getitem__, kept)
        if isinstance(self.images, (list, tuple)):
            images = list(images)
        notes = (*self.notes, f"{len(kept):,} of these {len(self):,} images were chosen")
        ids = tuple(self.ids[i] for i in kept)
        return replace(self, ids=ids, images=images, targets=self.targets[kept], notes=notes)

    def summary(self) -> str:
        """Say in one sentence what is measured on."""
        published = "" if self.published is None else f" (published: {self.published:,})"
        published = " (as published)" if self.published == len(self) else published
        present = float((self.targets == 1).sum() / max(len(self), 1))
        head = f"{self.name}: {len(self):,} images{published}, {len(self.labels)} labels, {present:.1f} labels an image"
        return "; ".join((head, *self.notes))


class Lazy(Sequence[Any]):
    """A sequence whose items are fetched when they are asked for."""

    def __init__(self, fetch: Callable[[int], Any], positions: Sequence[int]) -> None:
        self._fetch, self._positions = fetch, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Lazy(self._fetch, self._positions[index])
        return self._fetch(self._positions[index])


def settle_unlabelled(data: Dataset, unlabelled: Unlabelled) -> Dataset:
    """Keep or drop the images that carry none of the labels, and note how many there are."""
    if unlabelled not in ("keep", "drop"):
        raise ConfigError(f"unlabelled={unlabelled!r} is neither 'keep' nor 'drop'")
    labelled = (data.targets == 1).any(axis=1)
    count = len(data) - int(labelled.sum())
    if not count:
        return data
    if count == len(data):
        lack = f"not one of its {count:,} images carries any of the {len(data.labels)} labels"
        raise DatasetError(f"{data.name}: {lack}")
    fate = "are left out" if unlabelled == "drop" else "count as negatives"
    noted = replace(data, notes=(*data.notes, f"{count:,} images with none of the labels {fate}"))
    return replace(noted.select(labelled), notes=noted.notes) if unlabelled == "drop" else noted


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
        first = {label_key(name): name for _, names in reversed(rows) for name in reversed(names)}
        if not first:
            raise DatasetError(f"{source} lists {len(rows):,} images and not one label")
        labels = label_list([first[key] for key in sorted(first)], source)  # as it is first spelled
    targets = np.zeros((len(rows), len(labels)), dtype=np.int8)
    column = cache(labels.index)
    for row, (where, names) in enumerate(rows):
        try:
            targets[row, [column(name) for name in names]] = 1
        except LabelError as error:
            raise DatasetError(f"{source}, {where}: {error}") from None
    return labels, targets
