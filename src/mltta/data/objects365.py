"""Objects365, or any other dataset annotated in COCO's format: one JSON file and images in nested folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from mltta.data.coco import read_instances
from mltta.data.dataset import Dataset, Unlabelled, settle_unlabelled
from mltta.data.layout import as_folder, given_file, missing, place_images
from mltta.errors import DatasetError

_TREE = (
    "annotations/zhiyuan_objv2_{split}.json (any .json file in COCO's format)\n{split}/images/v1/patch0/*.jpg"
)


def load_objects365(
    root: str | os.PathLike[str],
    split: str = "val",
    annotations: str | os.PathLike[str] | None = None,
    unlabelled: Unlabelled = "keep",
) -> Dataset:
    """Read a split annotated in COCO's format with any categories, images ordered by id.

    Args:
        root: a folder that holds annotations/ and the images; they are looked for below root/<split>, root/images
            and root, by the path the file gives and by ever shorter ends of it.
        split: picks the .json file whose name contains it; not needed where there is only one.
        annotations: the annotation file, where it lies elsewhere.
    """
    top = as_folder(root)
    if top.name == "annotations" and annotations is None:
        top = top.parent
    file = _find_json(top, split) if annotations is None else given_file(annotations, top)
    table, name = read_instances(file), f"objects365-{split if split in file.stem else file.stem}"
    bases = [top / split, top / "images" / split, top / "images", top]
    images = place_images(top, name, bases, table.files)
    labels = replace(table.labels, source="objects365")
    data = Dataset(name, labels, table.ids, images, table.targets, None, tuple(table.notes))
    return settle_unlabelled(data, unlabelled)


def _find_json(top: Path, split: str) -> Path:
    """Find the annotation file: the only one, or the only one with the split in its name."""
    files = sorted((top / "annotations").glob("*.json")) or sorted(top.glob("*.json"))
    if not files:
        raise missing(top, f"an annotation file of the split {split}", _TREE.format(split=split))
    fitting = [file for file in files if split in file.stem] or files
    if len(fitting) > 1:
        names = ", ".join(file.name for file in fitting)
        raise DatasetError(
            f"several files in {fitting[0].parent} may be meant, name one as annotations: {names}"
        )
    return fitting[0]
