"""COCO, Objects365 and other datasets in COCO format: a JSON annotation file and folders of images."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mltta.data.dataset import Dataset, Unlabelled, label_list, settle_unlabelled
from mltta.data.layout import as_folder, given_file, locate, missing, place_images
from mltta.errors import DatasetError
from mltta.labels import LabelSet
from mltta.labels.sets import label_key
from mltta.storage.reading import ANNOTATIONS, explain, look, reading

PUBLISHED = {"train2014": 82783, "val2014": 40504, "train2017": 118287, "val2017": 5000}
_NEEDED = {"images": ("id", "file_name"), "categories": ("id", "name")}
_NEEDED["annotations"] = "image_id", "category_id"
_OBJECTS365 = """annotations/zhiyuan_objv2_{split}.json (any .json file in COCO's format)
{split}/images/v1/patch0/*.jpg"""


def load_coco(
    root: str | os.PathLike[str],
    split: str | None = None,
    annotations: str | os.PathLike[str] | None = None,
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a COCO split, images ordered by id; labels with at least one object that is not a crowd are present.

    Args:
        root: a folder with annotations/ and the images in <split>/ or images/<split>/.
        split: such as "val2017" (default: the only split in the folder).
        annotations: the instances file, if it is elsewhere.
    """
    top = as_folder(root)
    file = _find_instances(top, split) if annotations is None else given_file(annotations, top)
    found = file.stem.removeprefix("instances_")  # the name of a given annotation file contains the split
    home = file.parent.parent if file.parent.name == "annotations" else file.parent
    folders = [f"{images}/{part}" for part in (found, split) if part for images in (".", "images")]
    bases = [place / folder for place in (home, top) for folder in (*folders, "images", ".")]
    return _dataset(file, f"coco-{found}", top, bases, unlabelled)


def load_objects365(
    root: str | os.PathLike[str],
    split: str = "val",
    annotations: str | os.PathLike[str] | None = None,
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a split annotated in COCO's format with any categories, images ordered by id.

    Args:
        root: a folder with annotations/ and the images, which are searched in root/<split>, root/images and root by
            their path in the file, dropping leading folders if needed.
        split: selects the .json file whose name contains it; not needed if there is only one.
        annotations: the annotation file, if it is elsewhere.
    """
    top = as_folder(root)
    if top.name == "annotations" and annotations is None:
        top = top.parent
    file = _find_json(top, split) if annotations is None else given_file(annotations, top)
    bases = [top / split, top / "images" / split, top / "images", top]
    name = f"objects365-{split if split in file.stem else file.stem}"
    return _dataset(file, name, top, bases, unlabelled, "objects365")


def _find_instances(top: Path, split: str | None) -> Path:
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
                raise DatasetError(f"{top / folder} contains several splits, choose one: {splits}")
            if files:
                return files[0]
    wanted = split or "val2017"
    tree = f"annotations/instances_{wanted}.json\n{wanted}/*.jpg (or images/{wanted}/*.jpg)"
    others = [file.stem.removeprefix("instances_") for file in (top / "annotations").glob("instances_*.json")]
    hint = f"Available splits: {', '.join(sorted(others))}." if others else ""
    raise missing(top, f"the COCO split {wanted}", tree, hint)


def _find_json(top: Path, split: str) -> Path:
    """Find the annotation file: the only one, or the only one whose name contains the split."""
    files = sorted((top / "annotations").glob("*.json")) or sorted(top.glob("*.json"))
    if not files:
        raise missing(top, f"an annotation file of the split {split}", _OBJECTS365.format(split=split))
    fitting = [file for file in files if split in file.stem] or files
    if len(fitting) > 1:
        names, folder = ", ".join(file.name for file in fitting), fitting[0].parent
        raise DatasetError(f"several annotation files in {folder}, choose one with annotations: {names}")
    return fitting[0]


def _dataset(
    file: Path, name: str, top: Path, bases: Sequence[Path], unlabelled: Unlabelled, source: str = ""
) -> Dataset:
    """Read an annotation file; categories are ordered by id, and those with the same name are merged."""
    with reading(file, DatasetError, "use instances_<split>.json, or download it again"):
        content = _read_json(file)
        categories = sorted(content["categories"], key=lambda category: _order(category["id"]))
        entries = sorted(content["images"], key=lambda image: _order(image["id"]))
        names = {label_key(str(category["name"])): str(category["name"]) for category in reversed(categories)}
        keys = list(dict.fromkeys(label_key(str(category["name"])) for category in categories))
        column = {category["id"]: keys.index(label_key(str(category["name"]))) for category in categories}
        row = {image["id"]: i for i, image in enumerate(entries)}
        targets = np.zeros((len(entries), len(keys)), dtype=np.int8)
        crowds = np.zeros_like(targets)
        strays = 0
        for thing in content["annotations"]:
            kind, image = thing["category_id"], thing["image_id"]
            if kind not in column:
                raise DatasetError(f"{file}: an annotation has an unknown category id: {kind!r}")
            strays += image not in row
            if image in row:
                (crowds if thing.get("iscrowd") else targets)[row[image], column[kind]] = 1
        counts = {
            "label–image pairs with only crowds count as absent": int(((crowds == 1) & (targets == 0)).sum()),
            "categories are merged with others of the same name": len(categories) - len(keys),
            "annotations of unlisted images are ignored": strays,
        }
        labels = label_list([names[key] for key in keys], str(file))
        if labels.names == (coco := LabelSet.load("coco")).names:
            labels = coco
    images = place_images(top, name, bases, [str(image["file_name"]) for image in entries])
    published = PUBLISHED.get(name.removeprefix("coco-"))
    labels = replace(labels, source=source or labels.source)
    notes = tuple(f"{count:,} {what}" for what, count in counts.items() if count)
    ids = tuple(str(image["id"]) for image in entries)
    return settle_unlabelled(Dataset(name, labels, ids, images, targets, published, notes), unlabelled)


def _read_json(file: Path) -> dict[str, Any]:
    """Parse the file and report other kinds of COCO files."""
    kinds = f"{file} is not an instances file"
    try:
        look(file, ANNOTATIONS, DatasetError)
        content: dict[str, Any] = json.loads(file.read_bytes(), object_hook=_without_outlines)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or too deep
        damage = f"damaged or incomplete ({explain(error)})"
        raise DatasetError(f"{file} is {damage}: download or extract it again") from None
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror}") from None
    lists = [content.get(part, []) for part in _NEEDED] if isinstance(content, dict) else [None]
    if not all(isinstance(part, list) and all(isinstance(x, dict) for x in part) for part in lists):
        raise DatasetError(f"{kinds}: it has a different structure; use instances_<split>.json")
    if "annotations" not in content:
        raise DatasetError(f"{kinds}: it has no annotations (the labels of test splits are not public)")
    things = content["annotations"]
    if things and "caption" in things[0]:
        raise DatasetError(f"{kinds}, but contains captions: use instances_<split>.json")
    for part in ("categories", "images"):
        if not content.get(part):
            raise DatasetError(f"{kinds}: it lists no {part}; use instances_<split>.json")
    if any("keypoints" in category for category in content["categories"]):
        raise DatasetError(f"{kinds}, but contains keypoints: use instances_<split>.json")
    for part, keys in _NEEDED.items():
        for number, entry in enumerate(content[part], start=1):
            if not all(key in entry for key in keys):
                raise DatasetError(f"{kinds}: entry {number} of its {part} lacks {' or '.join(keys)}")
    return content


def _without_outlines(entry: dict[str, Any]) -> dict[str, Any]:
    """Drop the outlines of objects while parsing: they are 90% of a 500 MB file."""
    entry.pop("segmentation", None)
    return entry


def _order(identity: Any) -> tuple[bool, Any]:
    """Return a sort key: numbers by value, then strings."""
    return isinstance(identity, str), identity
