"""Whether a score of auto depends on the list: random lists that contain a label, photo by photo, bit for bit.

    python -m benchmarks.any_list --voc VOC [--photos 200] [--lists 300] [--engine onnx]

Each list has 1 to 1,000 labels in random order: words of all built-in lists, and words that no list has.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from benchmarks.annotated import dataset, features
from benchmarks.auto import photos
from mltta import create_method, load_backbone
from mltta.arrays import to_numpy
from mltta.labels.sets import label_key
from mltta.model.vocabulary import words
from mltta.storage.folders import cache_folder

TARGETS = ("dog", "sofa", "person", "tv monitor", "zorblewock", "two red cars", "animal", "cup | mug")
LONGEST = 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", type=Path, required=True)
    parser.add_argument("--photos", type=int, default=200)
    parser.add_argument("--lists", type=int, default=300)
    parser.add_argument("--engine", default="onnx")
    parser.add_argument("--features", type=Path, default=cache_folder() / "annotated", help="kept features")
    args = parser.parse_args()
    backbone = load_backbone("mini", device="cpu", engine=args.engine, any_method=args.engine == "torch")
    views = features(backbone, dataset("voc", "voc2012", args.voc, args.photos), args.features)
    rng = random.Random(0)
    every = {label_key(word): word for word in (*words(), *(f"unknown thing {i}" for i in range(40)))}
    pool = [every[key] for key in sorted(every)]

    def scores(labels: list[str]) -> np.ndarray:
        method = create_method("auto", backbone, labels)
        return np.concatenate([to_numpy(method.branches(one)["view"]) for one in photos(method, views)])  # type: ignore[arg-type]

    alone = {target: scores([target])[:, 0] for target in TARGETS}
    compared = different = 0
    for number in range(args.lists):
        target = TARGETS[number % len(TARGETS)]
        name = target.partition(" |")[0]
        others = [word for word in rng.sample(pool, rng.randint(1, LONGEST) - 1) if label_key(word) != name]
        labels = [*others, target]
        rng.shuffle(labels)
        found = scores(labels)[:, labels.index(target)]
        compared += len(found)
        different += int((found != alone[target]).sum())
    print(
        f"{compared:,} scores in {args.lists} lists of 1 to {LONGEST:,} labels: {different} differ from the label alone"
    )


if __name__ == "__main__":
    main()
