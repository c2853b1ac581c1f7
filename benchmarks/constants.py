"""Sensitivity to constants that the sources of some methods leave open, one changed at a time.

    python -m benchmarks.constants --voc VOCdevkit --coco coco --out constants [--method concepts bcp piaa]

`mini` on the dev sets (VOC2012 val, dev half; COCO train2017, dev sample), online methods in dataset order.
The first row of a method has its default settings. Results are stored in --out, so runs are resumable.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mltta import load_backbone, load_dataset
from mltta.cli.progress import bar_on_terminal
from mltta.data import Dataset
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.recipes import Recipe
from mltta.evaluation.summary import Summary
from mltta.model.backbone import Backbone

TRIED: dict[str, dict[str, tuple[Any, ...]]] = {
    "concepts": {"nearest": (64, 1024), "rounds": (2, 3), "weight": (0.5, 1.0, 2.0), "scale": (10 / 7,)},
    "bcp": {"confidence": (0.0, 0.3), "warm_up": (50,), "smoothing": (1.0, 5.0, 50.0), "most": (1.0, 2.0)},
    "piaa": {
        "memory": (8, 128),
        "again_at": (0.01,),
        "soften": (100.0,),
        "weight": (0.9, 1.0),
        "scale": (10 / 7,),
    },
}


def recipes(methods: list[str]) -> list[Recipe]:
    """Each method with default settings, then with one setting changed."""
    return [
        Recipe(method, options)
        for method in methods
        for options in ({}, *({name: value} for name, tried in TRIED[method].items() for value in tried))
    ]


def measure(dataset: Dataset, backbone: Backbone, wanted: list[Recipe], out: Path) -> list[Summary]:
    """Evaluate all recipes with one encoding."""
    with bar_on_terminal() as bar:
        task = bar.add_task(dataset.name, total=None)
        done = evaluate(
            dataset,
            backbone,
            wanted,
            out=out,
            progress=lambda n, of: bar.update(task, completed=n, total=of),
        )
    return [Summary(result) for result in done.results]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", required=True)
    parser.add_argument("--coco", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--method", nargs="+", choices=list(TRIED), default=list(TRIED))
    parser.add_argument("--first", type=int, help="use only the first N images of each set")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    backbone, wanted = load_backbone("mini", device=args.device), recipes(args.method)
    data = (load_dataset("voc2012", args.voc), load_dataset("coco2017", args.coco, split="train2017"))
    found = [measure(one.select(slice(args.first)), backbone, wanted, args.out) for one in data]
    print("| raw / softmax / z-score | VOC | COCO |\n|---|---|---|")
    for recipe, *both in zip(wanted, *found, strict=True):
        cells = (f"{one.map:.2f} / {one.map_softmax:.2f} / {one.map_z_score:.2f}" for one in both)
        print(f"| {recipe.name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
