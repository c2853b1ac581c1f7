"""COCO: annotations/instances_<split>.json beside a folder of images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from mltta.data import Dataset
from mltta.errors import MlttaError
from mltta.labels import LabelSet


def load_coco(root: str | Path, split: str | None = None) -> Dataset:
    """Read a COCO split (the only one there unless named); an object counts unless it is a crowd."""
    top = Path(root)
    files = sorted((top / "annotations").glob(f"instances_{split or '*'}.json"))
    if not files:
        raise MlttaError(f"no COCO in {top}: expected annotations/instances_{split or 'val2017'}.json there")
    split = files[0].stem.removeprefix("instances_")
    table = json.loads(files[0].read_text())
    categories = sorted(table["categories"], key=lambda c: c["id"])
    column = {c["id"]: i for i, c in enumerate(categories)}
    labels = LabelSet.load("coco")
    if [c["name"] for c in categories] != list(labels.names):
        labels = LabelSet.of([c["name"] for c in categories])
    images = sorted(table["images"], key=lambda image: image["id"])
    row = {image["id"]: i for i, image in enumerate(images)}
    targets = np.full((len(images), len(column)), -1, dtype=np.int8)
    for thing in table["annotations"]:
        if not thing.get("iscrowd", 0):
            targets[row[thing["image_id"]], column[thing["category_id"]]] = 1
    paths = tuple(top / split / image["file_name"] for image in images)
    return Dataset(f"coco-{split}", labels, tuple(str(image["id"]) for image in images), paths, targets)
