"""Evaluation of `auto`: mAP, F1 of label sets, lists of any length, calibration, and an ablation of its parts.

    python -m benchmarks.auto --voc VOCdevkit --coco coco [--fit] [--ablation] [--out figures.json]

VOC2012 val (its dev half) and COCO (its dev sample, split train2017) are encoded once; features are cached in the cache
folder. Constants of the method were chosen on these images. --fit prints a calibration fitted on every second image
and evaluated on the others. Lists: each label of VOC alone, random lists of five, VOC with 260 and with 1,000 other
labels (benchmarks/distractors.txt, none of which is one of the 20 or a kind of it), and twelve labels that hardly any
image shows.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mltta import Dataset, LabelSet, create_method, load_backbone, load_dataset
from mltta.decision import SHOWN_FROM
from mltta.methods.auto import Auto, Constants
from mltta.metrics import average_precision, calibration_error, mean_average_precision, set_metrics
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo

ABSENT = "zebra, giraffe, pizza, toilet, umbrella, surfboard, banana, refrigerator, keyboard, elephant, clock, kite"
SMALL = ("cup", "bottle", "chair", "potted plant", "tie", "book")
DISTRACTORS = (Path(__file__).parent / "distractors.txt").read_text(encoding="utf-8").split("\n")


@dataclass
class Images:
    """A dataset and the encoded views of its images."""

    data: Dataset
    views: Encoded

    @property
    def truth(self) -> NDArray[np.int8]:
        return self.data.targets


def encode(backbone: Backbone, data: Dataset, workers: int | None, cache: bool) -> Images:
    """Encode the views that auto needs at its best effort."""
    specs = create_method("auto", backbone, "voc").needs
    made = (lambda spec: FeatureCache(backbone, spec)) if cache else None
    pipeline = FeatureStream(
        backbone, specs, cache=made, fetch=_Fetch(data), execution=Execution(workers=workers)
    )
    found: dict[Any, list[Tensor]] = {spec: [] for spec in specs}
    for batch in pipeline(range(len(data))):
        for item in batch:
            for spec in specs:
                found[spec].append(item.features[spec])
    return Images(
        data,
        Encoded(
            {
                spec: torch.stack([torch.as_tensor(row) for row in rows]).to(backbone.device)
                for spec, rows in found.items()
            }
        ),
    )


class _Fetch:
    def __init__(self, data: Dataset):
        self.ids, self.images = data.ids, data.images

    def __call__(self, i: int) -> Photo:
        return Photo(i, self.ids[i], self.images[i], self.ids[i])


@torch.no_grad()
def evidence(method: Auto, images: Images, at_once: int = 64) -> Tensor:
    """Evidence (N, C), before calibration, on the CPU."""
    found = []
    for start in range(0, len(images.data), at_once):
        some = {spec: images.views.features(spec)[start : start + at_once].float() for spec in method.needs}
        found.append(method.evidence(Encoded(some)).cpu())
    return torch.cat(found)


def make(backbone: Backbone, labels: Any, **options: Any) -> Auto:
    """Create the method with some settings, and with constants that are not settings."""
    own = {field.name for field in fields(Constants)}
    constants = replace(Constants(), **{name: value for name, value in options.items() if name in own})
    with mock.patch.object(Auto, "constants", constants):
        options = {name: value for name, value in options.items() if name not in own}
        method = create_method("auto", backbone, labels, **options)
        assert isinstance(method, Auto)
        return method


def ece(score: Tensor, truth: NDArray[np.int8], above: float = 0.0) -> float:
    """Expected calibration error with ten bins, over image-label pairs that score at least ``above``."""
    shown = np.where(score.numpy() >= above, truth, -1).astype(np.int8)
    return calibration_error(score.numpy(), shown, bins=10)


def fit(parts: Sequence[tuple[Tensor, NDArray[np.int8]]], knee: float) -> list[float]:
    """Fit slope, bend and offset of the calibration on every second image; datasets have equal weight."""
    rows, present, weight = [], [], []
    for z, truth in parts:
        target = torch.from_numpy(truth[::2].astype(np.float32))
        kept = target >= 0
        rows.append(z[::2][kept])
        present.append(target[kept])
        weight.append(torch.full((int(kept.sum()),), 1 / float((target == 1).sum())))
    x, y, w = torch.cat(rows), torch.cat(present), torch.cat(weight)
    inputs = torch.stack([x, (x - knee).clamp(min=0), torch.ones_like(x)], dim=1)
    theta = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        each = torch.nn.functional.binary_cross_entropy_with_logits(inputs @ theta, y, reduction="none")
        total = (each * w).sum() / w.sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return [round(float(value), 3) for value in theta.detach()]


def fives(count: int) -> list[list[int]]:
    """All labels in random lists of five, three times."""
    lists = []
    for seed in range(3):
        order = list(range(count))
        random.Random(seed).shuffle(order)
        lists += [order[i : i + 5] for i in range(0, count, 5)]
    return lists


def lists_of(labels: LabelSet, wanted: Sequence[Sequence[int]]) -> list[tuple[LabelSet, list[int]]]:
    return [(labels.pick(list(own)), list(own)) for own in wanted]


def over_lists(
    backbone: Backbone, images: Images, wanted: Sequence[Sequence[int]], shown_from: float, **options: Any
) -> tuple[float, float]:
    """Mean AP over the labels of all lists, and F1 of all labels shown."""
    ap: list[float] = []
    said, truth = [], []
    for labels, own in lists_of(images.data.labels, wanted):
        method = make(backbone, labels, **options)
        score = method.odds(evidence(method, images)).sigmoid().numpy()
        ap += (100 * average_precision(score, images.truth[:, own])).tolist()
        said.append(score >= shown_from)
        truth.append(images.truth[:, own])
    return float(np.mean(ap)), set_metrics(np.concatenate(said, 1), np.concatenate(truth, 1)).f1


def beside(labels: LabelSet, others: Sequence[str]) -> LabelSet:
    """The labels, followed by others."""
    more = tuple(other for other in others if other and other not in labels.texts)
    empty: tuple[tuple[str, ...], ...] = ((),) * len(more)
    return LabelSet(labels.names + more, labels.texts + more, labels.synonyms + empty, "list")


def draw_reliability(parts: dict[str, tuple[Tensor, NDArray[np.int8]]], out: Path) -> None:
    """Draw a reliability diagram with ten bins, on every second image."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.4))
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="#9aa1a9", linewidth=1, linestyle="--")
    for (name, (score, truth)), colour in zip(parts.items(), ("#0f766e", "#b45309"), strict=False):
        kept = truth[1::2] >= 0
        x, y = score[1::2].numpy()[kept], truth[1::2][kept] == 1
        place = np.minimum((x * 10).astype(int), 9)
        bins = [i for i in range(10) if (place == i).sum() >= 20]
        axes.plot(
            [x[place == i].mean() for i in bins],
            [y[place == i].mean() for i in bins],
            marker="o",
            color=colour,
            label=name,
        )
    axes.set(xlabel="score", ylabel="fraction of correct labels", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", required=True)
    parser.add_argument("--coco", required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--first", type=int, help="use only the first N images of each")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=NUMBER", help="constants of the method")
    parser.add_argument("--shown-from", type=float, default=SHOWN_FROM)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--diagram", type=Path, help="write a reliability diagram to this file")
    args = parser.parse_args()
    options: dict[str, Any] = {}
    for pair in args.set:
        name, _, value = pair.partition("=")
        options[name] = value if name == "effort" else float(value)
    backbone = load_backbone(args.model, device=args.device)
    start = time.perf_counter()
    data = {
        "voc": load_dataset("voc2012", args.voc),
        "coco": load_dataset("coco2017", args.coco, split="train2017"),
    }
    sets = {
        name: encode(
            backbone, one.select(slice(args.first)) if args.first else one, args.workers, not args.no_cache
        )
        for name, one in data.items()
    }
    print(
        f"{sum(len(i.data) for i in sets.values()):,} images encoded or read in {time.perf_counter() - start:.0f} s"
    )
    figures: dict[str, Any] = {}

    def tell(what: str, value: Any) -> None:
        figures[what] = value
        print(f"{what}: {value}", flush=True)

    methods = {name: make(backbone, images.data.labels, **options) for name, images in sets.items()}
    z = {name: evidence(methods[name], images) for name, images in sets.items()}
    if args.fit:
        knee = methods["voc"].c.knee
        theta = fit([(z[name], sets[name].truth) for name in sets], knee)
        tell("fitted slope, bend, offset", theta)
        options |= dict(zip(("slope", "bend", "offset"), theta, strict=True))
        methods = {name: make(backbone, images.data.labels, **options) for name, images in sets.items()}
    score = {name: methods[name].odds(z[name]).sigmoid() for name in sets}
    if args.fit:
        for shown_from in (0.26, 0.28, 0.3, 0.32, 0.34, 0.36, 0.38, 0.4):
            f1 = [set_metrics(score[n].numpy() >= shown_from, sets[n].truth).f1 for n in sets]
            print(f"  shown from {shown_from}: F1 {f1[0]:.4f} VOC, {f1[1]:.4f} COCO")
    shown_from = args.shown_from
    for name, images in sets.items():
        tell(f"{name} mAP, best", round(mean_average_precision(score[name].numpy(), images.truth), 2))
        tell(f"{name} F1", round(set_metrics(score[name].numpy() >= shown_from, images.truth).f1, 4))
        held = slice(1, None, 2)
        errors = [ece(score[name][held], images.truth[held], above) for above in (0.0, 0.1)]
        tell(
            f"{name} calibration error on every second image, all pairs / from 0.1",
            [round(e, 4) for e in errors],
        )
    together = [torch.cat([score[n][1::2].flatten() for n in sets])[:, None]]
    truth = np.concatenate([sets[n].truth[1::2].flatten() for n in sets])[:, None]
    tell(
        "calibration error of both together",
        [round(ece(together[0], truth, above), 4) for above in (0.0, 0.1)],
    )
    if args.diagram is not None:
        draw_reliability({name.upper(): (score[name], sets[name].truth) for name in sets}, args.diagram)
    for what, more in (("fast", {"effort": "fast"}), ("best, no captions", {"captions": False})):
        for name, images in sets.items():
            method = make(backbone, images.data.labels, **{**options, **more})
            found = method.odds(evidence(method, images)).sigmoid().numpy()
            tell(f"{name} mAP, {what}", round(mean_average_precision(found, images.truth), 2))
            tell(f"{name} F1, {what}", round(set_metrics(found >= shown_from, images.truth).f1, 4))
    voc = sets["voc"]
    one = set_metrics(score["voc"].numpy() >= shown_from, voc.truth)
    person = voc.data.labels.names.index("person")
    tell("person, precision", round(float(one.per_class_precision[person]), 3))
    tell("person, recall", round(float(one.per_class_recall[person]), 3))
    coco = sets["coco"]
    small = [coco.data.labels.names.index(name) for name in SMALL]
    found, there = score["coco"].numpy()[:, small] >= shown_from, coco.truth[:, small] == 1
    right = int((found & there).sum())
    pooled = [right / max(1, int(found.sum())), right / max(1, int(there.sum()))]
    tell("small things on COCO, precision, recall", [round(share, 3) for share in pooled])
    ap, f1 = over_lists(backbone, voc, [[i] for i in range(20)], shown_from, **options)
    tell("each VOC label alone, mean AP, F1", [round(ap, 2), round(f1, 4)])
    ap, f1 = over_lists(backbone, voc, fives(20), shown_from, **options)
    tell("random lists of five, mean AP, F1", [round(ap, 2), round(f1, 4)])
    for count in (260, 1000):
        method = make(backbone, beside(voc.data.labels, DISTRACTORS[:count]), **options)
        found = method.odds(evidence(method, voc)).sigmoid().numpy()[:, :20]
        tell(f"VOC beside {count} others, mAP", round(mean_average_precision(found, voc.truth), 2))
        tell(f"VOC beside {count} others, F1", round(set_metrics(found >= shown_from, voc.truth).f1, 4))
    method = make(backbone, ABSENT, **options)
    empty = method.odds(evidence(method, voc)).sigmoid() >= shown_from
    tell("twelve absent labels: share of images that get one", round(float(empty.any(1).float().mean()), 4))
    typed = make(backbone, ", ".join(voc.data.labels.names), **options)
    same = torch.allclose(typed.odds(evidence(typed, voc)), methods["voc"].odds(z["voc"]), atol=1e-4)
    tell("typed by hand or by name: the same scores", same)
    if args.ablation:
        cases: list[tuple[str, dict[str, Any]]] = [
            ("all of it", {}),
            ("without captions", {"captions": False}),
            ("labels without the captions that name them", {"concepts": 0.0}),
            ("the mean of the views alone", {"peak": 0.0}),
            ("the best view alone", {"peak": 1.0}),
            ("without the background", {"background": 0.0}),
            ("one template", {"template": "a photo of a {}."}),
            ("without the windows of the smallest pass", {"smaller": 0.0}),
            ("one pass", {"effort": "fast"}),
        ]
        for what, more in cases:
            row = []
            for images in sets.values():
                method = make(backbone, images.data.labels, **{**options, **more})
                row.append(round(mean_average_precision(evidence(method, images).numpy(), images.truth), 2))
            tell(f"ablation, {what}", row)
    if args.out is not None:
        args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
