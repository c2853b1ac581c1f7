"""How auto ranks, decides and is calibrated on VOC2012 and COCO: the figures of docs/auto.md.

    python -m benchmarks.auto --voc VOC --coco COCO [--ablation] [--set NAME=NUMBER] [--first N] [--out FILE.json]
    python -m benchmarks.auto --voc VOC --coco COCO --eyes PACK --labeled LABELED --refit [--search] [--save FILE.json]

The features of each source are encoded once and kept in --features. --refit fits the calibration on all sources and
tells how it transfers to a source that was left out; --search first tries other constants. --save writes the
calibration, such as src/mltta/assets/mini/calibration.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from benchmarks import curve
from benchmarks.annotated import Annotated, dataset, features, held_out, packed
from mltta import create_method, load_backbone
from mltta.arrays import sigmoid, to_numpy
from mltta.decision import SHOWN_FROM
from mltta.methods.auto import Auto, Constants
from mltta.methods.calibration import Calibration, fingerprint
from mltta.metrics import mean_average_precision, set_metrics
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded
from mltta.storage.folders import cache_folder

ABSENT = "zebra, giraffe, pizza, toilet, umbrella, surfboard, banana, refrigerator, keyboard, elephant, clock, kite"
SMALL = ("cup", "bottle", "chair", "potted plant", "tie", "book")
#: tried one after the other by --search
TRIED: dict[str, tuple[float, ...]] = {
    "background": (0.01, 0.1, 0.3),
    "sureness": (1.0, 2.0, 5.0),
    "concepts": (0.0, 0.25, 1.0),
    "least_vote": (0.001, 0.01),
}
#: photos per source that --search looks at
SEARCHED = 200
Floats = NDArray[np.float64]


def make(backbone: Backbone, labels: Any, **options: Any) -> Auto:
    """Create the method with some settings, and with constants that are not settings."""
    own = {field.name for field in fields(Constants)}
    constants = replace(Constants(), **{name: value for name, value in options.items() if name in own})
    with mock.patch.object(Auto, "constants", constants):
        options = {name: value for name, value in options.items() if name not in own}
        method = create_method("auto", backbone, labels, **options)
        assert isinstance(method, Auto)
        return method


def photos(method: Auto, encoded: Encoded, most: int | None = None) -> Sequence[Encoded]:
    """Each photo by itself, in single precision."""
    rows = {spec: encoded.features(spec)[:most] for spec in method.needs}
    count, asarray = len(next(iter(rows.values()))), method.problem.backbone.asarray  # type: ignore[union-attr]
    return [
        Encoded({spec: asarray(own[i : i + 1].astype(np.float32)) for spec, own in rows.items()})
        for i in range(count)
    ]


def scores(method: Auto, encoded: Encoded) -> Floats:
    """Scores (N, C)."""
    rows = [sigmoid(method.branches(one)["view"]) for one in photos(method, encoded)]
    return np.concatenate([to_numpy(row) for row in rows]).astype(np.float64)


def evidence(method: Auto, source: Annotated, encoded: Encoded, most: int | None = None) -> curve.Evidence:
    """What the method says of the labels of a source."""
    own = to_numpy(method.words.own)
    rows = np.concatenate([to_numpy(method.evidence(one))[:, own] for one in photos(method, encoded, most)])
    words = [method.words.called[column] for column in own]
    common = to_numpy(method.words.common)[own]
    return curve.Evidence(source.name, rows, words, common, source.truth[:most], source.natural)


def loss(backbone: Backbone, sources: Sequence[tuple[Annotated, Encoded]], **options: Any) -> float:
    """Mean over the sources of 100 - mAP, and of 100 times the calibration error of photos that were not fitted."""
    found = [evidence(make(backbone, s.labels, **options), s, views, SEARCHED) for s, views in sources]
    _, rows = curve.report(found, SHOWN_FROM)
    return float(np.mean([100 - row[0] + 100 * row[3] for row in rows.values()]))


def search(backbone: Backbone, sources: Sequence[tuple[Annotated, Encoded]]) -> dict[str, float]:
    """Change one constant after the other where that helps."""
    chosen: dict[str, float] = {}
    best = loss(backbone, sources)
    print(f"loss {best:.2f} with the constants as they are", flush=True)
    for name, values in TRIED.items():
        for value in values:
            found = loss(backbone, sources, **{**chosen, name: value})
            print(f"loss {found:.2f} with {name} = {value}", flush=True)
            if found < best:
                best, chosen[name] = found, value
    print(f"chosen: {chosen or 'none changed'}")
    return chosen


def refit(
    backbone: Backbone, sources: Sequence[tuple[Annotated, Encoded]], shown_from: float, **options: Any
) -> tuple[Calibration, dict[str, list[float]]]:
    """Fit the calibration on all sources, and tell how it transfers."""
    found = [evidence(make(backbone, s.labels, **options), s, views) for s, views in sources]
    fitted, rows = curve.report(found, shown_from)
    print(curve.table(rows))
    for least in (0.25, 0.3, 0.35, 0.4, 0.45):
        f1 = {one.name: set_metrics(one.score(fitted) >= least, one.truth).f1 for one in found[:2]}
        print(f"shown from {least}: F1 " + ", ".join(f"{value:.4f} {name}" for name, value in f1.items()))
    return curve.with_model(fitted, fingerprint(backbone), ", ".join(one.name for one in found)), rows


def figures_of(
    backbone: Backbone, sets: dict[str, tuple[Annotated, Encoded]], shown_from: float, options: dict[str, Any]
) -> dict[str, Any]:
    """The figures of the page."""
    figures: dict[str, Any] = {}

    def tell(what: str, value: Any) -> None:
        figures[what] = value
        print(f"{what}: {value}", flush=True)

    found = {name: scores(make(backbone, s.labels, **options), views) for name, (s, views) in sets.items()}
    for name, (source, _) in sets.items():
        score, truth = found[name], source.truth
        tell(f"{name} mAP, best", round(mean_average_precision(score, truth), 2))
        tell(f"{name} F1", round(set_metrics(score >= shown_from, truth).f1, 4))
        tell(
            f"{name} calibration error, all pairs / from 0.1",
            [round(curve.error(score, truth, above), 4) for above in (0.0, 0.1)],
        )
        for what, more in (("fast", {"effort": "fast"}), ("best, no captions", {"captions": False})):
            other = scores(make(backbone, source.labels, **{**options, **more}), sets[name][1])
            tell(f"{name} mAP, {what}", round(mean_average_precision(other, truth), 2))
            tell(f"{name} F1, {what}", round(set_metrics(other >= shown_from, truth).f1, 4))
    if "voc" in sets:
        source, views = sets["voc"]
        one = set_metrics(found["voc"] >= shown_from, source.truth)
        person = source.labels.names.index("person")
        tell("person, precision", round(float(one.per_class_precision[person]), 3))
        tell("person, recall", round(float(one.per_class_recall[person]), 3))
        empty = scores(make(backbone, ABSENT, **options), views) >= shown_from
        tell("twelve absent labels: share of images that get one", round(float(empty.any(1).mean()), 4))
    if "coco" in sets:
        source, _ = sets["coco"]
        small = [source.labels.names.index(name) for name in SMALL]
        said, there = found["coco"][:, small] >= shown_from, source.truth[:, small] == 1
        right = int((said & there).sum())
        pooled = [right / max(1, int(said.sum())), right / max(1, int(there.sum()))]
        tell("small things on COCO, precision, recall", [round(share, 3) for share in pooled])
    return figures


def ablate(
    backbone: Backbone, sets: dict[str, tuple[Annotated, Encoded]], options: dict[str, Any]
) -> dict[str, list[float]]:
    """mAP without one part after the other."""
    cases: list[tuple[str, dict[str, Any]]] = [
        ("all of it", {}),
        ("without captions", {"captions": False}),
        ("labels without the captions that name them", {"concepts": 0.0}),
        ("all everyday words alike", {"background": 1.0}),
        ("without the weights of sure windows", {"sureness": 0.0}),
        ("one template", {"template": "a photo of a {}."}),
    ]
    found = {}
    for what, more in cases:
        rows = [
            mean_average_precision(scores(make(backbone, s.labels, **{**options, **more}), views), s.truth)
            for s, views in sets.values()
        ]
        found[f"ablation, {what}"] = [round(row, 2) for row in rows]
        print(what, found[f"ablation, {what}"], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", type=Path, required=True)
    parser.add_argument("--coco", type=Path, required=True)
    parser.add_argument("--eyes", type=Path, help="folder of photos.tar and photos.jsonl")
    parser.add_argument("--labeled", type=Path, help="folder that training.gather wrote; its held-out photos")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--engine", default="onnx")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--features", type=Path, default=cache_folder() / "annotated", help="kept features")
    parser.add_argument("--first", type=int, help="use only the first N images of each benchmark")
    parser.add_argument("--most", type=int, default=300, help="photos of each other source")
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--search", action="store_true", help="with --refit: try other constants first")
    parser.add_argument("--save", type=Path, help="with --refit: write the calibration to this file")
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=NUMBER", help="constants of the method")
    parser.add_argument("--shown-from", type=float, default=SHOWN_FROM)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    options: dict[str, Any] = {}
    for pair in args.set:
        name, _, value = pair.partition("=")
        options[name] = value if name == "effort" else float(value)
    backbone = load_backbone(
        args.model, device=args.device, engine=args.engine, any_method=args.engine == "torch"
    )
    start, effort = time.perf_counter(), options.get("effort", "best")
    found = [
        dataset("voc", "voc2012", args.voc, args.first),
        dataset("coco", "coco2017", args.coco, args.first, split="train2017"),
    ]
    found += packed(args.eyes, args.most) if args.eyes else []
    found += held_out(args.labeled, args.most) if args.labeled else []
    sources = [(one, features(backbone, one, args.features, effort)) for one in found]
    print(f"{sum(len(s.ids) for s in found):,} photos encoded or read in {time.perf_counter() - start:.0f} s")
    figures: dict[str, Any] = {}
    if args.refit:
        if args.search:
            options |= search(backbone, sources)
        fitted, rows = refit(backbone, sources, args.shown_from, **options)
        print(replace(fitted, labels={}), f"and {len(fitted.labels)} labels")
        figures["left out"] = rows
        if args.save:
            fitted.save(args.save)
    else:
        sets = {one.name: (one, views) for one, views in sources[:2]}
        figures = figures_of(backbone, sets, args.shown_from, options)
        if args.ablation:
            figures |= ablate(backbone, sets, options)
    if args.out is not None:
        args.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
