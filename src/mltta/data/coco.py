"""COCO: annotations/instances_<split>.json beside a folder of images, and any file of that kind."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.data.dataset import Dataset, Unlabelled, settle_unlabelled
from mltta.data.layout import as_folder, given_file, locate, missing, place_images
from mltta.data.named import label_list, same_label
from mltta.errors import DatasetError
from mltta.labels import LabelSet
from mltta.storage.reading import ANNOTATIONS, explain, look, reading

PUBLISHED = {"train2014": 82783, "val2014": 40504, "train2017": 118287, "val2017": 5000}


def load_coco(
    root: str | os.PathLike[str],
    split: str | None = None,
    annotations: str | os.PathLike[str] | None = None,
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a COCO split, images ordered by id; a label is present with one object of it that is not a crowd.

    Args:
        root: a folder that holds annotations/ and the images in <split>/ or images/<split>/.
        split: such as "val2017"; the only one there unless named.
        annotations: the instances file, where it lies elsewhere.
    """
    top = as_folder(root)
    file = _find_instances(top, split) if annotations is None else given_file(annotations, top)
    found = file.stem.removeprefix("instances_")  # an annotation file that is given says which split it is
    table, name = read_instances(file), f"coco-{found}"
    home = file.parent.parent if file.parent.name == "annotations" else file.parent
    folders = [f"{images}/{part}" for part in (found, split) if part for images in (".", "images")]
    bases = [place / folder for place in (home, top) for folder in (*folders, "images", ".")]
    images = place_images(top, name, bases, table.files)
    data = Dataset(
        name, table.labels, table.ids, images, table.targets, PUBLISHED.get(found), tuple(table.notes)
    )
    return settle_unlabelled(data, unlabelled)


def _find_instances(top: Path, split: str | None) -> Path:
    """Find the instances file of a split, or the only one there."""
    inner = ("annotations", "images", *([split] if split else []))
    for folder in ("annotations", "."):
        if split:
            base = locate(top, f"{folder}/instances_{split}.json", inner=inner)
            if base is not None:
                return base / folder / f"instances_{split}.json"
        else:
            files = sorted((top / folder).glob("instances_*.json"))
            if len(files) > 1:
                splits = ", ".join(file.stem.removeprefix("instances_") for file in files)
                raise DatasetError(f"{top / folder} holds several splits, name one of them: {splits}")
            if files:
                return files[0]
    wanted = split or "val2017"
    tree = f"annotations/instances_{wanted}.json\n{wanted}/*.jpg (or images/{wanted}/*.jpg)"
    others = sorted(
        file.stem.removeprefix("instances_") for file in (top / "annotations").glob("instances_*.json")
    )
    hint = f"Splits there: {', '.join(others)}." if others else ""
    raise missing(top, f"the COCO split {wanted}", tree, hint)


@dataclass
class Instances:
    """An instances file as ids, file names and targets."""

    labels: LabelSet
    ids: tuple[str, ...]
    files: list[str]
    targets: NDArray[np.int8]  # (N, C)
    notes: list[str]


def read_instances(file: Path) -> Instances:
    """Read a COCO-style instances file; categories are ordered by id, those of the same name are one label."""
    with reading(file, DatasetError, "use instances_<split>.json, or download it again"):
        return _read_instances(file, _read_json(file))


def _read_instances(file: Path, content: dict[str, Any]) -> Instances:
    categories = sorted(content["categories"], key=lambda category: _order(category["id"]))
    images = sorted(content["images"], key=lambda image: _order(image["id"]))
    first: dict[str, int] = {}
    names: list[str] = []
    column: dict[Any, int] = {}
    for category in categories:
        at = first.setdefault(same_label(str(category["name"])), len(names))
        if at == len(names):
            names.append(str(category["name"]))
        column[category["id"]] = at
    row = {image["id"]: i for i, image in enumerate(images)}
    targets = np.zeros((len(images), len(names)), dtype=np.int8)
    crowds = np.zeros_like(targets)
    strays = 0
    for thing in content["annotations"]:
        if thing["category_id"] not in column:
            raise DatasetError(f"{file}: an annotation has the unknown category id {thing['category_id']!r}")
        if thing["image_id"] not in row:
            strays += 1
            continue
        where = crowds if thing.get("iscrowd") else targets
        where[row[thing["image_id"]], column[thing["category_id"]]] = 1
    only = int(((crowds == 1) & (targets == 0)).sum())
    merged = len(categories) - len(names)
    notes = [
        *([f"{only:,} label–image pairs with crowds only count as absent"] if only else []),
        *([f"{merged:,} categories are merged into others of the same name"] if merged else []),
        *([f"{strays:,} annotations of images that are not listed are passed over"] if strays else []),
    ]
    ids = tuple(str(image["id"]) for image in images)
    coco = LabelSet.load("coco")
    labels = coco if list(coco.names) == names else label_list(names, str(file))
    return Instances(labels, ids, [str(image["file_name"]) for image in images], targets, notes)


def _read_json(file: Path) -> dict[str, Any]:
    """Parse the file and tell other kinds of COCO files apart."""
    kinds = f"{file} is not an instances file"
    try:
        look(file, ANNOTATIONS, DatasetError)
        content = json.loads(file.read_bytes(), object_hook=_without_outlines)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or too deep
        raise DatasetError(
            f"{file} is damaged or incomplete ({explain(error)}): download or extract it again"
        ) from None
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror}") from None
    parts = ("annotations", "images", "categories")
    if not isinstance(content, dict) or not all(
        isinstance(content.get(part, []), list) and all(isinstance(x, dict) for x in content.get(part, []))
        for part in parts
    ):
        raise DatasetError(f"{kinds}: it lacks the structure of one; use instances_<split>.json")
    if "annotations" not in content:
        raise DatasetError(f"{kinds}: it has no annotations (the labels of test splits are not public)")
    things = content["annotations"]
    if things and "caption" in things[0]:
        raise DatasetError(f"{kinds} but one of captions: use instances_<split>.json")
    if not content.get("categories") or not content.get("images"):
        lacking = "categories" if not content.get("categories") else "images"
        raise DatasetError(f"{kinds}: it lists no {lacking}; use instances_<split>.json")
    if any("keypoints" in category for category in content["categories"]):
        raise DatasetError(f"{kinds} but one of keypoints: use instances_<split>.json")
    needed = {
        "images": ("id", "file_name"),
        "categories": ("id", "name"),
        "annotations": ("image_id", "category_id"),
    }
    for part, keys in needed.items():
        for number, entry in enumerate(content[part], start=1):
            if not all(key in entry for key in keys):
                raise DatasetError(f"{kinds}: entry {number} of its {part} lacks {' or '.join(keys)}")
    return content


def _without_outlines(entry: dict[str, Any]) -> dict[str, Any]:
    """Drop the outlines of an object as soon as they are parsed: they are nine tenths of a file of 500 MB."""
    entry.pop("segmentation", None)
    return entry


def _order(identity: Any) -> tuple[bool, Any]:
    """Sort numbers by value, before ids that are strings."""
    return isinstance(identity, str), identity
