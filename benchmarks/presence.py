"""Which labels `mltta tag` calls present, against simple rules: precision, recall, F1, overall and per class.

    python benchmarks/dev_features.py --voc DIR --coco DIR --out FEATURES
    python benchmarks/presence.py     --voc DIR --coco DIR --features FEATURES

"One threshold" is chosen on every other image and, like all rules here, measured on the rest. The last lines say
how often anything is called present when no label of the list is in the image: twelve labels that VOC lacks.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

from benchmarks.compare_methods import score
from benchmarks.dev_features import add_feature_arguments, datasets, read_features
from mltta import LabelSet, load_backbone
from mltta.backbone import Backbone
from mltta.captions.base import default_captions, label_captions
from mltta.data import Dataset
from mltta.metrics import mean_average_precision, set_metrics
from mltta.presence import Presence

ABSENT = "zebra, giraffe, pizza, toilet, umbrella, surfboard, banana, refrigerator, keyboard, elephant, clock, kite"


def best_threshold(scores: Tensor, truth: np.ndarray) -> float:
    """The score from which labels are called present that gives the best F1."""
    tries = torch.linspace(0.005, 0.995, 199)
    return float(max(tries, key=lambda t: set_metrics(scores >= t, truth).f1))


def votes_of(backbone: Backbone, labels: LabelSet, features: Tensor, rule: Presence) -> Tensor:
    captions = label_captions(labels, backbone, default_captions(backbone))
    return torch.cat([rule.votes(part, captions, backbone.logit_scale) for part in features.split(32)])


def report(backbone: Backbone, dataset: Dataset, features: Tensor, method: str, share: list[float]) -> None:
    """Print all rules on one dataset."""
    truth = dataset.targets[: len(features)]
    learn, judge = slice(0, None, 2), slice(1, None, 2)
    probability = score(backbone, dataset, features, method, {}).softmax(-1)
    rule = Presence()
    votes = votes_of(backbone, dataset.labels, features, rule)
    evidence = rule.evidence(probability, votes)
    rank = probability.argsort(dim=-1, descending=True).argsort(dim=-1)
    threshold = best_threshold(probability[learn], truth[learn])
    rules = {"mltta tag": rule.present(evidence, votes), "top 1": rank < 1, "top 2": rank < 2}
    rules[f"one threshold ({threshold:.3f})"] = probability >= threshold
    for other in share:
        rules[f"mltta tag, share {other}"] = Presence(share=other).present(evidence, votes)
    print(f"\n{dataset.name}, {method}: every second of {len(features)} images\n")
    print("| rule | precision | recall | F1 | class F1 | labels an image |\n|---|---|---|---|---|---|")
    for name, present in rules.items():
        m = set_metrics(present[judge], truth[judge])
        values = (m.precision, m.recall, m.f1, m.mean_f1, m.labels_per_image)
        print(f"| {name} | " + " | ".join(f"{v:.3f}" for v in values) + " |")
    ranks = [mean_average_precision(values, truth) for values in (probability, evidence)]
    print(f"\nmAP over all images: softmax {ranks[0]:.2f}, evidence {ranks[1]:.2f}")
    ours = set_metrics(rules["mltta tag"][judge], truth[judge])
    recall = np.where(ours.positives > 0, ours.per_class_recall, np.nan)
    f1 = np.where(ours.positives + ours.predicted > 0, ours.per_class_f1, np.nan)
    print("\n| label | precision | recall | F1 |\n|---|---|---|---|")
    for c, name in enumerate(dataset.labels.names):
        print(f"| {name} | {ours.per_class_precision[c]:.2f} | {recall[c]:.2f} | {f1[c]:.2f} |")
    if dataset.name.startswith("voc"):
        empty = votes_of(backbone, LabelSet.of(ABSENT), features, rule).amax(-1) >= rule.least
        spoken = votes.amax(-1) >= rule.least
        print(f"\nanything called present: {float(spoken.float().mean()):.1%} of images with VOC's labels,")
        print(f"{float(empty.float().mean()):.1%} with twelve labels that are not there")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_feature_arguments(parser)
    parser.add_argument("--method", default="ml-tta")
    parser.add_argument("--share", type=float, nargs="*", default=[], help="also try these shares")
    args = parser.parse_args()
    backbone = load_backbone(args.model, device="cpu")
    for dataset in datasets(args):
        report(backbone, dataset, read_features(args.features, dataset), args.method, args.share)


if __name__ == "__main__":
    main()
