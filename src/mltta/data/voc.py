"""PASCAL VOC: a VOCdevkit with ImageSets/Main/<label>_<split>.txt and JPEGImages."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mltta.data import Dataset
from mltta.errors import MlttaError
from mltta.labels import LabelSet


def load_voc(root: str | Path, year: int = 2012, split: str = "val") -> Dataset:
    """Read a VOC split from a folder that holds VOCdevkit, VOC2012, or its contents."""
    top = Path(root)
    places = (top / "VOCdevkit" / f"VOC{year}", top / f"VOC{year}", top)
    base = next((place for place in places if (place / "ImageSets" / "Main").is_dir()), None)
    if base is None:
        raise MlttaError(
            f"no VOC{year} in {top}: expected VOCdevkit/VOC{year}/ImageSets/Main and JPEGImages there"
        )
    labels = LabelSet.load("voc")
    columns = []
    for name in labels.names:
        file = base / "ImageSets" / "Main" / f"{name}_{split}.txt"
        if not file.is_file():
            raise MlttaError(f"{file} is missing, so the labels of VOC{year} {split} cannot be read")
        columns.append(dict(line.split() for line in file.read_text().splitlines() if line.strip()))
    ids = tuple(sorted(columns[0]))
    targets = np.array([[int(column[i]) for column in columns] for i in ids], dtype=np.int8)
    return Dataset(f"voc{year}", labels, ids, tuple(base / "JPEGImages" / f"{i}.jpg" for i in ids), targets)
