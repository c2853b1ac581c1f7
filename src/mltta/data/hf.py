"""Hugging Face datasets: a split on the Hub or on disk, with columns detected by type."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

from mltta.data.dataset import Dataset, Lazy, Unlabelled, label_list, mark, settle_unlabelled
from mltta.errors import ConfigError, DatasetError
from mltta.labels import LabelSet, LabelSource

_NAMES = ("labels", "label", "tags", "classes", "categories", "category", "category_id")


def load_hf(
    root: str | os.PathLike[str],
    split: str | None = None,
    labels: LabelSource | None = None,
    config: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a split that `datasets` can load, in its order; ids are row numbers, and images are read on access.

    Args:
        root: a name on the Hub, or a folder for `load_from_disk` or `load_dataset`.
        split: required if there are several.
        labels: the label list; required if labels are numbers without names.
        config: the configuration, for datasets that have several.
        image_column: the column of images (default: the only one).
        label_column: a column of label lists, or "objects.category" for a field of objects (default: detected by
            type).
    """
    rows, split = open_split(root, split, config)
    name = re.sub(r"[^\w.-]+", "-", f"hf-{Path(root).absolute().name}-{split}")
    images, labelled = _image_column(rows, image_column), label_column or _label_column(rows)
    column, _, field = labelled.partition(".")
    if column not in rows.features:
        raise ConfigError(f"{name} has no column {column!r}; {_columns(rows)}")
    if not len(rows):
        raise DatasetError(f"{name} has no rows")
    kind = _leaf(rows.features[column], field)
    if kind is None:
        raise ConfigError(f"{name}: {labelled!r} does not contain label names or numbers; {_columns(rows)}")
    values = [_flat(row[column], field) for row in rows.select_columns([column])]
    classes: list[str] | None = getattr(kind, "names", None)
    chosen = LabelSet.of(labels) if labels is not None else label_list(classes, name) if classes else None
    notes: tuple[str, ...] = ()
    if not all(isinstance(label, str) for row in values for label in row):
        order = classes or (chosen.names if chosen else None)
        if order is None:
            raise ConfigError(f"{name}: labels are numbers without names; give the label list in their order")
        # Class labels are positions by definition; other numbers may be one 0 or 1 per label.
        if not classes and not field and all(len(row) == len(order) and set(row) <= {0, 1} for row in values):
            values = [[i for i, flag in enumerate(row) if flag] for row in values]
            notes = ("its labels are read as one 0 or 1 per label",)
        for i, label in ((i, label) for i, row in enumerate(values) for label in row):
            if not isinstance(label, int) or not 0 <= label < len(order):
                raise DatasetError(f"{name}, row {i}: {label!r} is not a position in {len(order)} labels")
        values = [[order[label] for label in row] for row in values]
    table, targets = mark([(f"row {i}", row) for i, row in enumerate(values)], chosen, name)
    pictures = Lazy(_Encoded(rows, images), range(len(values)))
    ids = tuple(map(str, range(len(values))))
    return settle_unlabelled(Dataset(name, table, ids, pictures, targets, None, notes), unlabelled)


def open_images(root: str | os.PathLike[str], split: str | None, column: str | None = None) -> Lazy:
    """Return the images of a split, labelled or not, fetched on access."""
    rows, _ = open_split(root, split)
    return Lazy(_Encoded(rows, _image_column(rows, column)), range(len(rows)))


class _Encoded:
    """Fetch the image of a row as file content or path; load_image decodes it."""

    def __init__(self, rows: Any, column: str) -> None:
        from datasets import Image

        self._rows = rows.select_columns([column]).cast_column(column, Image(decode=False))
        self._column = column

    def __call__(self, row: int) -> bytes | Path:
        cell = self._rows[row][self._column] or {}
        if cell.get("bytes") is None and cell.get("path"):
            return Path(cell["path"])
        return bytes(cell.get("bytes") or b"")


def open_split(root: str | os.PathLike[str], split: str | None, config: str | None = None) -> tuple[Any, str]:
    """Load a split from disk if the folder exists, otherwise from the Hub."""
    try:
        import datasets
    except ImportError:
        needs = "needs the package datasets: pip install mltta[datasets]"
        raise ConfigError(f"reading Hugging Face datasets {needs}") from None
    source, folder = os.fspath(root), Path(root).expanduser()
    saved, place = is_saved(folder), str(folder) if folder.exists() else source
    try:
        open_ = datasets.load_from_disk if saved else partial(datasets.load_dataset, name=config, split=split)
        loaded = open_(place)
    except Exception as error:  # the Hub, the network and parsers raise almost anything
        reason = (next(iter(str(error).splitlines()), "") or type(error).__name__).rstrip(". ")
        raise DatasetError(
            f"the Hugging Face dataset {source!r} cannot be loaded: {reason}. Check its name, split and configuration "
            f"and the connection, or give a folder written by save_to_disk."
        ) from None
    if isinstance(loaded, dict):
        if split is None and len(loaded) == 1:
            split = next(iter(loaded))
        if split not in loaded:
            which = "several splits" if split is None else f"no split {split!r}"
            raise ConfigError(f"{source} has {which}; choose from {', '.join(loaded)}")
        loaded = loaded[split]
    elif saved and split is not None and loaded.split is not None and str(loaded.split) != split:
        raise ConfigError(f"{source} contains only the split {loaded.split}, not {split!r}")
    return loaded, split or str(loaded.split or "all")


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return any((folder / file).is_file() for file in ("dataset_info.json", "dataset_dict.json"))


def _image_column(rows: Any, given: str | None) -> str:
    from datasets import Image

    if given is not None and given not in rows.features:
        raise ConfigError(f"no image column {given!r}; {_columns(rows)}")
    found = [given] if given else [name for name, kind in rows.features.items() if isinstance(kind, Image)]
    if len(found) != 1:
        many = "several columns contain" if found else "no column contains"
        raise ConfigError(f"{many} images, choose one with image_column; {_columns(rows)}")
    return found[0]


def _label_column(rows: Any) -> str:
    """Choose the label column: lists of named classes, then objects with a class, then common names."""
    features = rows.features
    leaves = {name: _leaf(kind) for name, kind in features.items()}
    lists = [name for name, kind in features.items() if _inside(kind) is not None]
    fields = {name: [field for field in _NAMES if _leaf(kind, field)] for name, kind in features.items()}
    ranks = (
        [name for name in lists if hasattr(leaves[name], "names")],
        [f"{name}.{own[0]}" for name, own in fields.items() if own],
        [name for name in lists if name in _NAMES and leaves[name]],
        [name for name in features if name not in lists and hasattr(leaves[name], "names")],
    )
    for found in ranks:
        named = [name for name in found if name in _NAMES]
        if len(found) == 1 or len(named) == 1:
            return (named or found)[0]
    raise ConfigError(f"cannot detect the label column, give it as label_column; {_columns(rows)}")


def _inside(kind: Any) -> Any:
    """Return the item feature of a list; None for other features."""
    return kind[0] if isinstance(kind, list) else getattr(kind, "feature", None)


def _leaf(kind: Any, field: str = "") -> Any:
    """Return the feature of classes, strings or integers inside lists and, with a field, objects; else None."""
    inner = field
    while isinstance(kind, dict) or _inside(kind) is not None:
        if isinstance(kind, dict):
            kind, inner = kind.get(inner), ""
        else:
            kind = _inside(kind)
    dtype = str(getattr(kind, "dtype", ""))
    fitting = hasattr(kind, "names") or re.match(r"u?int|bool|(large_)?string", dtype)
    return kind if fitting and not inner else None


def _flat(value: Any, field: str) -> list[Any]:
    """List the labels of a row: a single one, a list, or a field of objects."""
    if isinstance(value, dict):
        return _flat(value.get(field), field)
    if isinstance(value, (list, tuple)):
        return [label for item in value for label in _flat(item, field)]
    return [] if value is None or value == "" else [value]


def _columns(rows: Any) -> str:
    return f"its columns are {', '.join(rows.features)}"
