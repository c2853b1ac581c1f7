"""Format of the data gathered by `prepare.py` for training."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TypedDict, cast

from training import pieces

INDEX, LABELS, BPE = "index.json.gz", "labels.npz", "bpe.txt.gz"
FLICKR, IMAGENET, MINILM, TOWER = "flickr.bin", "imagenet.bin", "minilm", "tower.safetensors"


class Index(TypedDict):
    """Names, captions and sentences."""

    flickr: list[tuple[str, int, int]]  # name, offset and length of each image in its file
    captions: list[list[str]]  # of each Flickr8k image
    imagenet: list[tuple[str, int, int]]
    classes: list[int]  # of each ImageNet photograph
    class_names: list[list[str]]  # of the 1,000 classes, most usual first
    nouns: list[str]
    corpus: list[str]
    leaning: list[tuple[str, str, float]]  # other wordings of labels, see `wording.py`


def write_index(pack: Path, index: Index) -> None:
    """Write the index into a pack."""
    with gzip.open(pack / INDEX, "wt", encoding="utf-8") as file:
        json.dump(index, file)


def read_index(pack: Path) -> Index:
    """Read it back."""
    with gzip.open(pack / INDEX, "rt", encoding="utf-8") as file:
        return cast(Index, json.load(file))


def first(index: Index, images: int) -> Index:
    """A small part of an index, for a trial: some images of each set, ten times as many sentences."""
    texts, few = 10 * images, index.copy()
    few["flickr"], few["captions"] = index["flickr"][:images], index["captions"][:images]
    few["imagenet"], few["classes"] = index["imagenet"][:images], index["classes"][:images]
    few["corpus"] = index["corpus"][:: max(1, len(index["corpus"]) // texts)]
    few["leaning"] = index["leaning"][:: max(1, len(index["leaning"]) // texts)]
    return few


def unpacked(folder: Path) -> Path:
    """The pack in a folder: the folder itself, or the joined pieces in it."""
    return folder if (folder / INDEX).exists() else pieces.join(folder, folder / "unpacked")
