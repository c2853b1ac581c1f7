"""Zero-shot mAP of a model on VOC2012 and COCO: measured, never used to train or to choose.

Prompt "a photo of a {}.", the model's own preprocessing, scores by raw cosine and by softmax over the labels
at the checkpoint's own logit scale, with bootstrap intervals over images.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from model import read
from PIL import Image

SPACED = {"diningtable": "dining table", "pottedplant": "potted plant", "tvmonitor": "tv monitor"}


def average_precision(scores: np.ndarray, positive: np.ndarray) -> float:
    """Mean of the precision at each positive, in descending order of score."""
    hits = positive[np.argsort(-scores, kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float((precision * hits).sum() / (hits.sum() + 1e-8))


def bootstrap(scores: np.ndarray, positive: np.ndarray, draws: int, seed: int = 0) -> tuple[float, float]:
    """95% interval of the mAP (in percent) when images are drawn again with replacement.

    Drawing an image twice flatters rare labels, so the spread of the draws is centred on the mAP itself.
    """
    n, classes = scores.shape
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), draws).astype(np.float32)
    total, counted = np.zeros(draws), np.zeros(draws)
    for c in range(classes):
        order = np.argsort(-scores[:, c], kind="stable")
        copies = times[:, order]
        hits = copies * positive[order, c]
        # copies of an image stand next to each other: take the precision in their middle
        middle_hits = np.cumsum(hits, 1) - hits / 2 + 0.5 * (hits > 0)
        middle_rank = np.cumsum(copies, 1) - copies / 2 + 0.5
        sums = hits.sum(1)
        total += np.where(sums > 0, (hits * middle_hits / middle_rank).sum(1) / np.maximum(sums, 1), 0)
        counted += sums > 0
    point = 100 * np.mean([average_precision(scores[:, c], positive[:, c]) for c in range(classes)])
    drawn = 100 * total / counted
    low, high = point + np.percentile(drawn - drawn.mean(), [2.5, 97.5])
    return float(low), float(high)


def read_voc(root: Path) -> tuple[list[Path], np.ndarray, list[str]]:
    """Images, labels (value 1 only) and names of a VOCdevkit."""
    base = next(p for p in (root / "VOCdevkit/VOC2012", root / "VOC2012", root) if (p / "ImageSets").is_dir())
    files = sorted((base / "ImageSets/Main").glob("*_val.txt"))
    columns = [
        {i: int(v) for i, v in (line.split() for line in f.read_text().splitlines() if line)} for f in files
    ]
    ids = sorted(columns[0])
    labels = np.array([[column[i] == 1 for column in columns] for i in ids])
    names = [f.name.removesuffix("_val.txt") for f in files]
    return [base / "JPEGImages" / f"{i}.jpg" for i in ids], labels, [SPACED.get(n, n) for n in names]


def read_coco(root: Path) -> tuple[list[Path], np.ndarray, list[str]]:
    """Images, labels (instances that are no crowd) and names of a COCO folder."""
    file = next((root / "annotations").glob("instances_*.json"))
    table = json.loads(file.read_text())
    categories = sorted(table["categories"], key=lambda c: c["id"])
    column = {c["id"]: i for i, c in enumerate(categories)}
    row = {image["id"]: i for i, image in enumerate(table["images"])}
    labels = np.zeros((len(row), len(column)), bool)
    for instance in table["annotations"]:
        if not instance.get("iscrowd", 0):
            labels[row[instance["image_id"]], column[instance["category_id"]]] = True
    folder = root / file.stem.removeprefix("instances_")
    return [folder / image["file_name"] for image in table["images"]], labels, [c["name"] for c in categories]


@torch.inference_mode()
def cosines(
    folder: Path, paths: list[Path], names: list[str], device: torch.device
) -> tuple[np.ndarray, float]:
    """Raw cosines (images, labels) and the model's logit scale."""
    model, tokenizer, preprocess = read(folder)
    model.to(device)
    text = model.encode_text(tokenizer([f"a photo of a {n}." for n in names]).to(device), normalize=True)

    def load(path: Path) -> torch.Tensor:
        with Image.open(path) as image:
            return preprocess(image.convert("RGB"))

    rows = []
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), 64):
            pixels = torch.stack(list(pool.map(load, paths[start : start + 64]))).to(device)
            rows.append((model.encode_image(pixels, normalize=True) @ text.T).float().cpu())
    return torch.cat(rows).numpy(), float(model.logit_scale.exp())


def report(name: str, folder: Path, data: tuple[list[Path], np.ndarray, list[str]], draws: int,
           device: torch.device) -> dict[str, object]:  # fmt: skip
    """Print and return mAP with intervals and the AP of every label."""
    paths, labels, names = data
    raw, scale = cosines(folder, paths, names, device)
    logits = raw * scale
    soft = np.exp(logits - logits.max(1, keepdims=True))
    soft /= soft.sum(1, keepdims=True)
    result: dict[str, object] = {"images": len(paths), "labels": len(names), "logit_scale": scale}
    per: dict[str, list[float]] = {}
    print(f"{name}: {len(paths)} images, {len(names)} labels, logit scale {scale:.1f}")
    for kind, scores in (("softmax", soft), ("raw", raw)):
        per[kind] = [100 * average_precision(scores[:, c], labels[:, c]) for c in range(len(names))]
        low, high = bootstrap(scores, labels, draws)
        aps = dict(zip(names, per[kind], strict=True))
        result[kind] = {"mAP": float(np.mean(per[kind])), "low": low, "high": high, "AP": aps}
        print(f"  mAP {kind:8s} {np.mean(per[kind]):6.2f}   95% interval {low:.2f} to {high:.2f}")
    for c, label in enumerate(names):
        soft_ap, raw_ap = per["softmax"][c], per["raw"][c]
        print(f"    {label:16s} {int(labels[:, c].sum()):5d}  softmax {soft_ap:6.2f}  raw {raw_ap:6.2f}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with open_clip_config.json and weights"
    )
    parser.add_argument("--voc", type=Path, help="folder that holds VOCdevkit")
    parser.add_argument("--coco", type=Path, help="folder that holds annotations and images")
    parser.add_argument("--first", type=int, help="only so many images of each set")
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap samples")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    results = {}
    for name, root, reader in (("VOC2012", args.voc, read_voc), ("COCO", args.coco, read_coco)):
        if root:
            paths, labels, names = reader(root)
            data = (paths[: args.first], labels[: args.first], names)
            results[name] = report(name, args.model, data, args.draws, torch.device(args.device))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
