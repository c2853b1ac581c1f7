"""Benchmark datasets in their usual layouts on disk: images, ids and labels."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from mltta.data.coco import load_coco, load_objects365
from mltta.data.dataset import Dataset, Unlabelled
from mltta.data.hf import load_hf
from mltta.data.nuswide import load_nuswide
from mltta.data.own_folder import load_folder
from mltta.data.voc import load_voc
from mltta.errors import ConfigError, DatasetError
from mltta.labels import BUILT_IN, LabelSet, LabelSource
from mltta.labels.sets import Naming, Wording

__all__ = ["Dataset", "DatasetError", "list_datasets", "load_dataset", "named_dataset"]

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "voc2007": partial(load_voc, year=2007, split="test"),
    "voc2012": partial(load_voc, year=2012, split="val"),
    "coco2014": partial(load_coco, split="val2014"),
    "coco2017": partial(load_coco, split="val2017"),
    "nuswide": load_nuswide,
    "objects365": load_objects365,
    "folder": load_folder,
    "hf": load_hf,
}


def list_datasets() -> list[str]:
    """List the dataset names for `load_dataset`."""
    return list(_LOADERS)


def load_dataset(
    name: str,
    root: str | os.PathLike[str],
    *,
    split: str | None = None,
    unlabelled: Unlabelled | None = None,
    difficult: Literal["negative", "ignore"] = "negative",
    annotations: str | os.PathLike[str] | None = None,
    labels: LabelSource | None = None,
    config: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    label_names: Naming = "readable",
    noun_words: Wording = "full",
) -> Dataset:
    """Open a dataset. ``load_dataset("voc2012", "data").summary()`` describes it.

    Args:
        name: one of `list_datasets()`.
        root: the folder of the dataset; for hf, a name on the Hub or a folder.
        split: a split other than the default, such as "train" (voc) or "train2017" (coco).
        unlabelled: "keep" or "drop" images without any of the labels; None follows published results, which drop
            them in nuswide and keep them elsewhere.
        difficult: voc: labels with only difficult objects count as absent ("negative") or are ignored ("ignore").
        annotations: coco, objects365, folder: the annotation file, if it is not in its usual place.
        labels: folder, hf: the label list, as anything that `LabelSet.of` accepts.
        config: hf: the configuration, for datasets that have several.
        image_column: hf: the column of images.
        label_column: hf: the column of labels.
        label_names: what prompts say for the labels of a built-in set: "readable" or "released" ("diningtable").
        noun_words: the words that name them in captions: "full" or "released"; see `LabelSet.load`.
    """
    key = re.sub(r"[-_ ]", "", str(name).casefold())
    if key not in _LOADERS:
        close = difflib.get_close_matches(key, _LOADERS, n=2, cutoff=0.5)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise ConfigError(f"unknown dataset {name!r}; choose from {', '.join(_LOADERS)}.{hint}")
    given: dict[str, Any] = {"split": split, "unlabelled": unlabelled, "annotations": annotations}
    given |= {"labels": labels, "config": config, "image_column": image_column, "label_column": label_column}
    given["difficult"] = None if difficult == "negative" else difficult
    options = {option: value for option, value in given.items() if value is not None}
    known = inspect.signature(_LOADERS[key]).parameters
    for option in options:
        if option not in known:
            has = ", ".join(o for o in given if o in known)
            raise ConfigError(f"dataset {key} does not support the option {option}; it supports {has}")
    data = _LOADERS[key](root, **options)
    if data.labels.source in BUILT_IN:
        data = replace(data, labels=LabelSet.load(data.labels.source, label_names, noun_words))
    return data


def named_dataset(given: str, **options: Any) -> Dataset:
    """Open a dataset from one word, NAME[:SPLIT]=DIR, such as voc2012=VOCdevkit; options as of `load_dataset`."""
    what, equals, folder = given.partition("=")
    if not equals:
        raise ConfigError(f"--data {given}: give a dataset's name and its folder, as voc2012=VOCdevkit")
    name, _, split = what.partition(":")
    return load_dataset(name, folder, split=split or None, **options)
