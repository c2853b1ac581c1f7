"""Custom datasets: a folder of images and a CSV or JSON Lines file with their labels."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mltta.data.dataset import Dataset, Unlabelled, label_list, mark, settle_unlabelled
from mltta.data.layout import as_folder, given_file, listed_once, missing, place_images, read_text
from mltta.errors import DatasetError
from mltta.labels import LabelSet, LabelSource
from mltta.storage.reading import UNREADABLE, explain, shorten

_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
_IMAGE = ("image", "image_path", "file", "file_name", "filename", "path")
_LABELS = ("labels", "label", "tags")
_FLAGS = {"1": 1, "0": 0, "-1": -1, "1.0": 1, "0.0": 0, "-1.0": -1, "true": 1, "false": 0}
_TREE = """labels.csv     with the columns image,labels and rows such as a.jpg,dog|traffic light
or labels.jsonl   with lines such as {"image": "a.jpg", "labels": ["dog", "traffic light"]}
a.jpg …        (or images/a.jpg)"""


@dataclass
class _Row:
    """An annotated image: line, name, and labels or one 1, 0 or -1 per label column."""

    line: int
    image: str
    labels: Sequence[str] = ()
    flags: Sequence[int] = ()


def load_folder(
    root: str | os.PathLike[str],
    annotations: str | os.PathLike[str] | None = None,
    labels: LabelSource | None = None,
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a folder of images with a label file, in the order of that file.

    The file is UTF-8. A CSV file starts with a header: either ``image,labels`` with several labels separated by
    ``|`` (if no row has one, by ``;`` or else by ``,`` in quotes), or ``image`` and one column per label with 1
    (present), 0 (absent) or -1 (ignored in metrics). A JSON Lines file has one
    ``{"image": "a.jpg", "labels": ["dog"]}`` per line. Images are searched beside the file, in root and in
    root/images.

    Args:
        root: the folder, or the label file itself.
        annotations: the label file (default: labels.csv, labels.jsonl or the only such file in root).
        labels: the label list (default: all labels that occur, sorted).
    """
    given = Path(root).expanduser()
    if annotations is None and given.is_file() and given.suffix.casefold() in _SUFFIXES:
        root, annotations = given.absolute().parent, given
    top = as_folder(root)
    file = _find_file(top) if annotations is None else given_file(annotations, top)
    name = f"folder-{top.absolute().name}"
    chosen = None if labels is None else LabelSet.of(labels)
    suffix = file.suffix.casefold()
    if suffix not in _SUFFIXES:
        hint = "; the dataset objects365 reads COCO's format" if suffix == ".json" else ""
        raise DatasetError(f"{file} is neither a .csv nor a .jsonl file{hint}")
    columns, rows = _read_csv(file) if suffix in (".csv", ".tsv") else ((), list(_read_jsonl(file)))
    if not rows:
        raise DatasetError(f"{file} lists no images")
    ids = tuple(listed_once(file, ((row.line, row.image) for row in rows)))
    if columns:
        table = chosen or label_list(columns, str(file))
        targets = np.array([row.flags for row in rows], dtype=np.int8)[:, _order(file, columns, table)]
    else:
        table, targets = mark([(f"line {row.line}", row.labels) for row in rows], chosen, str(file))
    images = place_images(top, name, [file.parent, top, top / "images"], ids)
    left = int((targets == -1).sum())
    notes = (f"{left:,} label–image pairs marked -1 are ignored in metrics",) if left else ()
    data = Dataset(name, table, ids, images, targets, None, notes)
    return settle_unlabelled(data, unlabelled)


def _find_file(top: Path) -> Path:
    files = sorted(file for file in top.iterdir() if file.suffix.casefold() in _SUFFIXES)
    named = [file for file in files if file.stem.casefold() == "labels"] or files
    if len(named) > 1:
        names = ", ".join(file.name for file in named)
        raise DatasetError(f"{top} contains several label files, choose one with annotations: {names}")
    if named:
        return named[0]
    raise missing(top, "a label file", _TREE)


def _read_csv(file: Path) -> tuple[tuple[str, ...], list[_Row]]:
    """Read a table: the label columns, empty if labels are listed in one column, and the rows."""
    text = read_text(file)
    head = text.split("\n", 1)[0]
    delimiter = next((mark for mark in ",;\t" if mark in head), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        table = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise DatasetError(f"{file}, line {reader.line_num}: not a readable table: {error}") from None
    plain = [cell.casefold() for cell in header]
    image = next((plain.index(name) for name in _IMAGE if name in plain), None)
    if image is None or len(header) < 2:
        raise DatasetError(
            f"{file}: the first line must be a header with image,labels or image and one column per label, "
            f"found {shorten(head.strip())!r}"
        )
    listed = next((plain.index(name) for name in _LABELS if name in plain), None)
    for line, cells in table:
        if len(cells) != len(header):
            hint = "" if listed is None else "; separate labels by |"
            counts = f"{len(cells)} cells where the header has {len(header)}"
            raise DatasetError(f"{file}, line {line}: {counts}{hint}")
    rows = [_Row(line, _image(file, line, cells[image])) for line, cells in table]
    if listed is None:
        labels = [(i, name) for i, name in enumerate(header) if i != image]
        for row, (line, cells) in zip(rows, table, strict=True):
            row.flags = [_flag(file, line, name, cells[i]) for i, name in labels]
        return tuple(name for _, name in labels), rows
    between = next((mark for mark in "|;" if any(mark in cells[listed] for _, cells in table)), ",")
    for row, (_, cells) in zip(rows, table, strict=True):
        row.labels = [name for name in map(str.strip, cells[listed].split(between)) if name]
    return (), rows


def _read_jsonl(file: Path) -> Iterator[_Row]:
    for line, text in enumerate(read_text(file).split("\n"), start=1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except UNREADABLE as error:
            raise DatasetError(f"{file}, line {line}: not valid JSON: {explain(error)}") from None
        held = entry if isinstance(entry, dict) else {}
        image, labels = (next((held[key] for key in keys if key in held), None) for keys in (_IMAGE, _LABELS))
        words = labels if isinstance(labels, list) and all(isinstance(n, str) for n in labels) else None
        if not isinstance(image, str) or words is None:
            raise DatasetError(
                f'{file}, line {line}: expected {{"image": "a.jpg", "labels": ["dog", "cat"]}}, '
                f"found {shorten(text.strip())!r}"
            )
        yield _Row(line, _image(file, line, image), [n for n in map(str.strip, words) if n])


def _order(file: Path, columns: Sequence[str], labels: LabelSet) -> list[int]:
    """Return the position of the column for each label."""
    _, places = mark([(f"column {column!r}", [column]) for column in columns], labels, str(file))
    for name, count in zip(labels.names, places.sum(axis=0), strict=True):
        if count != 1:
            raise DatasetError(f"{file} has {count or 'no'} columns for the label {name!r}, expected one")
    return [int(column) for column in places.argmax(axis=0)]


def _image(file: Path, line: int, name: str) -> str:
    """Normalize an image name; tables made on Windows contain backslashes."""
    if not name.strip():
        raise DatasetError(f"{file}, line {line}: the image name is missing")
    return name.strip().replace("\\", "/")


def _flag(file: Path, line: int, label: str, cell: str) -> int:
    value = _FLAGS.get(cell.strip().casefold())
    if value is None:
        raise DatasetError(f"{file}, line {line}, column {label!r}: expected 1, 0 or -1, found {cell!r}")
    return value
