"""PASCAL VOC: a VOCdevkit with ImageSets/Main/<label>_<split>.txt and JPEGImages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import numpy as np

from mltta.data.dataset import Dataset, Unlabelled, settle_unlabelled
from mltta.data.layout import as_folder, locate, missing, place_images, read_lines, unextracted
from mltta.errors import ConfigError, DatasetError
from mltta.labels import LabelSet

PUBLISHED = {
    2007: {"train": 2501, "val": 2510, "trainval": 5011, "test": 4952},
    2012: {"train": 5717, "val": 5823, "trainval": 11540},
}
_TREE = """VOCdevkit/VOC{year}/ImageSets/Main/aeroplane_{split}.txt … tvmonitor_{split}.txt
VOCdevkit/VOC{year}/JPEGImages/*.jpg"""
_INNER = ("ImageSets", "Main", "JPEGImages", "Annotations")


def load_voc(
    root: str | os.PathLike[str],
    year: int = 2012,
    split: str = "val",
    difficult: Literal["negative", "ignore"] = "negative",
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a VOC split, images ordered by id.

    Args:
        root: a folder that contains VOCdevkit or VOC2012, or one of these folders.
        difficult: labels whose objects are all marked difficult count as absent ("negative", as published) or are
            ignored in metrics ("ignore").
    """
    if difficult not in ("negative", "ignore"):
        raise ConfigError(f"difficult={difficult!r} is neither 'negative' nor 'ignore'")
    top, name = as_folder(root), f"voc{year}-{split}"
    base = locate(top, "ImageSets/Main", (f"VOCdevkit/VOC{year}", f"VOC{year}", "."), _INNER)
    # the folder may have another name
    named = re.match(r"VOC(\d{4})", base.absolute().name) if base else None
    if base is None or (named and int(named[1]) != year):
        raise missing(top, f"VOC{year}", _TREE.format(year=year, split=split))
    labels = LabelSet.load("voc")
    values = _read_class_files(base / "ImageSets" / "Main", labels, split, top)
    ids = tuple(sorted(values[0]))
    marks = np.array([[column[i] for column in values] for i in ids], dtype=np.int8).reshape(-1, len(labels))
    images = place_images(top, name, [base / "JPEGImages"], [f"{i}.jpg" for i in ids])
    targets = np.where(marks == 1, 1, np.where((marks == 0) & (difficult == "ignore"), -1, 0)).astype(np.int8)
    fate = "are ignored in metrics" if difficult == "ignore" else "count as absent"
    pairs = int((marks == 0).sum())
    notes = (f"{pairs:,} label–image pairs with only difficult objects {fate}",) if pairs else ()
    data = Dataset(name, labels, ids, images, targets, PUBLISHED.get(year, {}).get(split), notes)
    return settle_unlabelled(data, unlabelled)


def _read_class_files(main: Path, labels: LabelSet, split: str, top: Path) -> list[dict[str, int]]:
    """Read a mapping from image id to 1, 0 or -1 per label; all must list the same images."""
    there = {file.stem.rpartition("_")[2] for file in main.glob("*_*.txt")}
    if split not in there:
        splits = f"available splits are {', '.join(sorted(there))}" if there else "there are none"
        raise DatasetError(f"{main} has no class files for the split {split!r}: {splits}" + unextracted(top))
    columns: list[dict[str, int]] = []
    for name in labels.names:
        file = main / f"{name}_{split}.txt"
        columns.append(_read_class_file(file))
        if columns[0].keys() != columns[-1].keys():
            odd = min(columns[0].keys() ^ columns[-1].keys())
            first = main / f"{labels.names[0]}_{split}.txt"
            here, lost = (file, first) if odd in columns[-1] else (first, file)
            said = f"{here} lists the image {odd}, but {lost} does not"
            raise DatasetError(f"the class files disagree: {said}; extract them again")
    return columns


def _read_class_file(file: Path) -> dict[str, int]:
    column: dict[str, int] = {}
    for number, line in read_lines(file):
        image, value = fields if len(fields := line.split()) == 2 else ("", "")
        if value not in ("1", "0", "-1"):
            raise DatasetError(f"{file}, line {number}: expected an image id and 1, 0 or -1, found {line!r}")
        if image in column:
            raise DatasetError(f"{file}, line {number}: the image {image} is listed twice")
        column[image] = int(value)
    if not column:
        raise DatasetError(f"{file} is empty: extract it again")
    return column
