"""NUS-WIDE: an image list, one file of zeros and ones per concept, and the images from Flickr."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mltta.data.dataset import Dataset, Unlabelled, settle_unlabelled
from mltta.data.layout import as_folder, listed_once, locate, missing, place_images, read_lines, unextracted
from mltta.errors import DatasetError
from mltta.labels import LabelSet

# With and without images that have none of the 81 concepts.
PUBLISHED = {("test", "drop"): 83898, ("test", "keep"): 107859, ("train", "keep"): 161789}
_INNER = ("ImageList", "TrainTestLabels", "Groundtruth", "ConceptsList", "Flickr", "images")
_TREE = """ImageList/{split}Imagelist.txt
Groundtruth/TrainTestLabels/Labels_<concept>_{split}.txt (or TrainTestLabels/…), 81 of them
Flickr/<folder>/*.jpg (or images/<folder>/*.jpg)"""


def load_nuswide(
    root: str | os.PathLike[str], split: str = "test", unlabelled: Unlabelled = "drop"
) -> Dataset:
    """Read NUS-WIDE with its 81 concepts, images in the order of the official list.

    Args:
        split: "test" or "train".
        unlabelled: "drop" removes images without any of the concepts, as in published results.
    """
    top, part = as_folder(root), split.capitalize()
    labels = LabelSet.load("nuswide")
    lists = [f"ImageList/{part}Imagelist.txt", f"{part}Imagelist.txt"]
    list_file = next((base / own for own in lists if (base := locate(top, own, inner=_INNER))), None)
    if list_file is None:
        raise missing(top, f"the {split} split of NUS-WIDE", _TREE.format(split=part))
    home = list_file.parent.parent if list_file.parent.name == "ImageList" else list_file.parent
    # the official lists contain backslashes
    names = listed_once(list_file, ((n, line.replace("\\", "/")) for n, line in read_lines(list_file)))
    if not names:
        raise DatasetError(f"{list_file} is empty: extract it again")
    places = map(home.joinpath, ("TrainTestLabels", "Groundtruth/TrainTestLabels", "Groundtruth", "."))
    folder = next((place for place in places if any(place.glob(f"Labels_*_{part}.txt"))), None)
    if folder is None:
        raise missing(home, f"the labels of NUS-WIDE's {split} split", _TREE.format(split=part))
    columns = [_read_concept(folder / f"Labels_{n}_{part}.txt", list_file, len(names)) for n in labels.names]
    bases = [home / "Flickr", home / "images", home, home / "Flickr" / "Flickr"]
    images = place_images(home, f"nuswide-{split}", bases, names)
    published = PUBLISHED.get((split, unlabelled))
    data = Dataset(f"nuswide-{split}", labels, tuple(names), images, np.stack(columns, axis=1), published)
    return settle_unlabelled(data, unlabelled)


def _read_concept(file: Path, list_file: Path, count: int) -> NDArray[np.int8]:
    if not file.is_file():
        raise DatasetError(f"{file} is missing: its concept has no labels" + unextracted(file.parent))
    # As bytes, because 81 files of 107,859 lines take seconds as text.
    values = file.read_bytes().removeprefix(b"\xef\xbb\xbf").split()
    if not set(values) <= {b"0", b"1"}:
        number, line = next((n, line) for n, line in read_lines(file) if line not in ("0", "1"))
        raise DatasetError(f"{file}, line {number}: expected 0 or 1, found {line!r}")
    if len(values) != count:
        raise DatasetError(f"{file} has {len(values):,} lines, but {list_file} lists {count:,} images")
    return np.asarray(np.array(values, dtype="S1") == b"1", dtype=np.int8)
