"""A small world for the evaluator: photos on disk, a tiny random model, a few captions, and a way to run it all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.evaluation.evaluate import Evaluation, evaluate
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.results import Result
from mltta.images.specs import ViewSpec
from mltta.labels import LabelSet
from mltta.model.encoded import Encoded
from mltta.session.execution import Execution
from mltta.session.features import encode_images
from tests import golden_data as golden
from tests.test_tagger import photo

LABELS = LabelSet.of(["dog", "cat", "person", "bicycle", "sofa"])
EPISODIC = (
    Recipe("clip"),
    Recipe("tpt", {"views": 16}),
    Recipe("ml-tta", {"views": 16}),
    Recipe("rlcf", {"views": 16}),
)


@cache
def captions() -> CaptionBase:
    """Sentences that name each label, alone and together."""
    words = LABELS.names
    pairs = [f"A {a} beside a {b}." for a in words for b in words if a < b]
    return CaptionBase.build([*pairs, "A quiet lake.", "A loaf of bread.", "Snow."], golden.backbone("vit"))


def labelled() -> LabelledCaptions:
    return label_captions(LABELS, golden.backbone("vit"), captions())


def make_dataset(folder: Path, images: int = 9, first: int = 0, name: str = "toy") -> Dataset:
    """Photos ``first``, ``first + 1``, … with random labels of their own, in files of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths, targets = [], []
    for seed in range(first, first + images):
        paths.append(folder / f"photo{seed}.png")
        if not paths[-1].exists():
            photo(seed, (48, 36)).save(paths[-1])
        targets.append(np.random.default_rng(seed).integers(0, 2, len(LABELS)))
    return Dataset(name, LABELS, tuple(path.name for path in paths), paths, np.array(targets, np.int8))


def run(
    dataset: Dataset,
    recipes: Sequence[Recipe | str],
    out: Path,
    *,
    batch_size: int | None = None,
    workers: int = 0,
    **options: Any,
) -> Evaluation:
    """Evaluate with the tiny model, the features kept beside the results unless told otherwise."""
    options = {"captions": captions(), "teacher": "self", "cache": out / "features", **options}
    execution = Execution(batch_size=batch_size, workers=workers)
    return evaluate(dataset, golden.backbone("vit"), recipes, out=out, execution=execution, **options)


def bits(result: Result) -> dict[str, bytes]:
    """Each image's scores of every branch, to the last bit, by the id that its record says."""
    rows = result.branches()
    lines = map(json.loads, (result.folder / "images.jsonl").read_text().splitlines())
    ids = {line["index"]: line["id"] for line in lines}
    return {ids[int(place)]: rows[i].tobytes() for i, place in enumerate(result.scored)}


def encoded(dataset: Dataset, spec: ViewSpec, seed: int = 0) -> Iterator[Encoded]:
    """The images one by one as an evaluation gives them to a method, without its machinery of results."""
    for image in dataset.images:
        yield encode_images(golden.backbone("vit"), [image], [spec], seed=seed)


def shuffled(images: int, order: int) -> NDArray[np.int64]:
    """The order of the images that a recipe's ``order`` stands for."""
    return np.random.default_rng(order).permutation(images)
