"""Images sorted into one folder a label: the layout that few-shot training takes."""

from __future__ import annotations

import os

from mltta.data.dataset import Dataset
from mltta.data.layout import as_folder, missing
from mltta.data.named import mark
from mltta.errors import DatasetError
from mltta.images.find import find_images
from mltta.labels import LabelSet, LabelSource

_TREE = """dog/a.jpg …     one folder a label, named as the label is
sofa/b.jpg …"""


def load_class_folders(root: str | os.PathLike[str], labels: LabelSource | None = None) -> Dataset:
    """Read a folder whose subfolders are named as labels; an image shows the label whose folder it is in.

    Args:
        labels: the labels there are; all subfolders, sorted, unless given.
    """
    top = as_folder(root)
    folders = sorted(child for child in top.iterdir() if child.is_dir())
    images = [(folder, image) for folder in folders for image in find_images(folder)]
    if not images:
        raise missing(top, "a folder of images for each label", _TREE)
    chosen = None if labels is None else LabelSet.of(labels)
    rows = [(f"folder {folder.name!r}", [folder.name]) for folder, _ in images]
    table, targets = mark(rows, chosen, str(top))
    without = [name for name, count in zip(table.names, targets.sum(axis=0), strict=True) if not count]
    if without:
        raise DatasetError(
            f"{top} has no images of {', '.join(without[:5])}; every label needs a folder with some"
        )
    ids = tuple(image.relative_to(top).as_posix() for _, image in images)
    return Dataset(f"folders-{top.absolute().name}", table, ids, [image for _, image in images], targets)
