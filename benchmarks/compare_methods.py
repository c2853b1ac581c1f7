"""Methods side by side on encoded dev sets: mAP by raw logits and by softmax, differences with intervals.

    python benchmarks/dev_features.py    --voc DIR --coco DIR --out FEATURES
    python benchmarks/compare_methods.py --voc DIR --coco DIR --features FEATURES [--markdown]

Differences are to zero-shot CLIP, with a 95% interval from a paired bootstrap over images.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from benchmarks.dev_features import add_feature_arguments, datasets, read_features
from mltta import create_method, load_backbone
from mltta.backbone import Backbone
from mltta.data import Dataset
from mltta.encode import Encoded
from mltta.metrics import bootstrap_map, mean_average_precision
from mltta.views import ViewSpec

ROWS: list[tuple[str, str, dict[str, object]]] = [
    ("CLIP", "clip", {}),
    ("TPT", "tpt", {}),
    ("VP", "ml-tta", {"caption_prompt": False, "bind": False}),
    ("VP + BEM", "ml-tta", {"caption_prompt": False}),
    ("CP", "ml-tta", {"view_prompt": False, "bind": False}),
    ("CP + BEM", "ml-tta", {"view_prompt": False}),
    ("VP + CP", "ml-tta", {"bind": False}),
    ("ML-TTA (VP + CP + BEM)", "ml-tta", {}),
    ("ML-TTA, released settings", "ml-tta", {"preset": "released", "augmix": False, "merge": "sum"}),
]


def score(
    backbone: Backbone, dataset: Dataset, features: torch.Tensor, method: str, options: dict
) -> torch.Tensor:
    """Mean logits (N, C) of a method's prompts."""
    ready = create_method(method, backbone, dataset.labels, **options)
    spec = ViewSpec(count=features.shape[1])
    branches = [ready.branches(Encoded({spec: part})) for part in features.split(16)]
    return torch.cat([torch.stack(list(b.values())).mean(0) for b in branches])


def compare(backbone: Backbone, dataset: Dataset, features: torch.Tensor, draws: int) -> list[list[str]]:
    """One row a method: name, raw mAP, its difference, softmax mAP, its difference."""
    targets = dataset.targets[: len(features)]
    base: dict[str, np.ndarray] = {}
    rows = []
    for name, method, options in ROWS:
        logits = score(backbone, dataset, features, method, options)
        row = [name]
        for kind, values in (("raw", logits), ("softmax", logits.softmax(-1))):
            drawn = bootstrap_map(values, targets, draws)
            row.append(f"{mean_average_precision(values, targets):.2f}")
            low, high = np.percentile(drawn - base.setdefault(kind, drawn), [2.5, 97.5])
            row.append("" if method == "clip" else f"{low:+.2f} to {high:+.2f}")
        rows.append(row)
        print(" ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_feature_arguments(parser)
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args()
    backbone = load_backbone(args.model, device="cpu")
    for dataset in datasets(args):
        features = read_features(args.features, dataset)
        rows = compare(backbone, dataset, features, args.draws)
        print(f"\n{dataset.name}, {len(features)} images, {len(dataset.labels)} labels, {args.model}\n")
        head = ["method", "mAP raw", "against CLIP", "mAP softmax", "against CLIP"]
        for line in (head, ["---"] * len(head), *rows):
            print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
