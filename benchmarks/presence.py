"""Label sets of `mltta tag` compared with simple rules: precision, recall, F1, overall and per class.

    python benchmarks/presence.py --voc DIR --coco DIR [--method ml-tta] [--device auto]

The single threshold is chosen on every second image and, like all rules here, evaluated on the others. The last lines
show how often any label is shown if none of the list is in the image: twelve labels that VOC lacks.
Features are read from the cache of `mltta eval`, and added to it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mltta import LabelSet, create_method, load_backbone
from mltta.captions.labelled import label_captions
from mltta.captions.store import default_captions
from mltta.cli.progress import bar_on_terminal
from mltta.data import Dataset, load_dataset
from mltta.decision import Presence
from mltta.images.specs import ViewSpec
from mltta.metrics import mean_average_precision, set_metrics
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo

SPEC = ViewSpec(count=64)

ABSENT = "zebra, giraffe, pizza, toilet, umbrella, surfboard, banana, refrigerator, keyboard, elephant, clock, kite"


def best_threshold(scores: Tensor, truth: np.ndarray) -> float:
    """The threshold with the best F1."""
    tries = torch.linspace(0.005, 0.995, 199)
    return float(max(tries, key=lambda t: set_metrics(scores >= t, truth).f1))


def features_of(backbone: Backbone, dataset: Dataset) -> Tensor:
    """Features (N, 64, D) of all images, in float32."""
    found = []
    pipeline = FeatureStream(
        backbone,
        [SPEC],
        execution=Execution(workers=os.cpu_count() or 1),
        cache=lambda spec: FeatureCache(backbone, spec),
    )
    listed = zip(dataset.ids, dataset.images, strict=True)
    photos = (Photo(i, id, image, id) for i, (id, image) in enumerate(listed))
    with bar_on_terminal() as bar:
        task = bar.add_task(dataset.name, total=len(dataset))
        for items in pipeline(photos):
            found += [item.features[SPEC] for item in items]
            bar.advance(task, len(items))
    return torch.stack(found).to(backbone.device, torch.float32)


def score(backbone: Backbone, dataset: Dataset, features: Tensor, method: str) -> Tensor:
    """Probabilities (N, C) of the labels, from a method."""
    ready = create_method(method, backbone, dataset.labels)
    branches = [ready.branches(Encoded({SPEC: part})) for part in features.split(16)]
    return torch.cat([ready.probabilities(part) for part in branches])


def single_share(backbone: Backbone, labels: LabelSet, features: Tensor) -> float:
    """Share of views whose nearest caption names a single label, which binding leaves unchanged."""
    captions = label_captions(labels, backbone, default_captions(backbone)).named()
    counts = torch.cat([captions.nearest_counts(part) for part in features.split(32)])
    return float((counts == 1).float().mean())


def votes_of(backbone: Backbone, labels: LabelSet, features: Tensor, rule: Presence) -> Tensor:
    captions = label_captions(labels, backbone, default_captions(backbone))
    return torch.cat([rule.votes(part, captions, backbone.logit_scale) for part in features.split(32)])


def report(backbone: Backbone, dataset: Dataset, features: Tensor, method: str, share: list[float]) -> None:
    """Print all rules for one dataset."""
    truth = dataset.targets[: len(features)]
    learn, judge = slice(0, None, 2), slice(1, None, 2)
    probability = score(backbone, dataset, features, method).cpu()
    rule = Presence()
    votes = votes_of(backbone, dataset.labels, features, rule).cpu()
    evidence = rule.evidence(probability, votes)
    rank = probability.argsort(dim=-1, descending=True).argsort(dim=-1)
    threshold = best_threshold(probability[learn], truth[learn])
    rules = {"mltta tag": rule.present(evidence, votes), "top 1": rank < 1, "top 2": rank < 2}
    rules[f"one threshold ({threshold:.3f})"] = probability >= threshold
    for other in share:
        rules[f"mltta tag, share {other}"] = Presence(share=other).present(evidence, votes)
    print(f"\n{dataset.name}, {method}: every second of {len(features)} images\n")
    print("| rule | precision | recall | F1 | class F1 | labels per image |\n|---|---|---|---|---|---|")
    for name, present in rules.items():
        m = set_metrics(present[judge], truth[judge])
        values = (m.precision, m.recall, m.f1, m.mean_f1, m.labels_per_image)
        print(f"| {name} | " + " | ".join(f"{v:.3f}" for v in values) + " |")
    ranks = [mean_average_precision(values, truth) for values in (probability, evidence)]
    print(f"\nmAP over all images: softmax {ranks[0]:.2f}, evidence {ranks[1]:.2f}")
    alone = single_share(backbone, dataset.labels, features)
    print(f"views whose nearest caption names a single label: {alone:.1%}")
    ours = set_metrics(rules["mltta tag"][judge], truth[judge])
    recall = np.where(ours.positives > 0, ours.per_class_recall, np.nan)
    f1 = np.where(ours.positives + ours.predicted > 0, ours.per_class_f1, np.nan)
    print("\n| label | precision | recall | F1 |\n|---|---|---|---|")
    for c, name in enumerate(dataset.labels.names):
        print(f"| {name} | {ours.per_class_precision[c]:.2f} | {recall[c]:.2f} | {f1[c]:.2f} |")
    if dataset.name.startswith("voc"):
        empty = votes_of(backbone, LabelSet.of(ABSENT), features, rule).amax(-1) >= rule.least
        spoken = votes.amax(-1) >= rule.least
        print(f"\nimages with a label shown: {float(spoken.float().mean()):.1%} with VOC's labels,")
        print(f"{float(empty.float().mean()):.1%} with twelve absent labels")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", type=Path, help="folder that contains VOCdevkit")
    parser.add_argument("--coco", type=Path, help="folder that contains annotations/ and the images")
    parser.add_argument("--coco-split", default="train2017", help="split (the dev sample is from train2017)")
    parser.add_argument("--first", type=int, help="use only the first N images of each")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--method", default="ml-tta")
    parser.add_argument("--share", type=float, nargs="*", default=[], help="also evaluate these shares")
    args = parser.parse_args()
    backbone = load_backbone(args.model, device=args.device)
    sets = [load_dataset("voc2012", args.voc)] if args.voc else []
    sets += [load_dataset("coco2017", args.coco, split=args.coco_split)] if args.coco else []
    for dataset in (one.select(slice(args.first)) for one in sets):
        report(backbone, dataset, features_of(backbone, dataset), args.method, args.share)


if __name__ == "__main__":
    main()
