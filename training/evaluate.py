"""Zero-shot mAP of a model on VOC2012 and COCO: measured, never used to train or to choose.

Prompt "a photo of a {}.", the model's own preprocessing, scores by raw cosine and by softmax over the labels
at the checkpoint's own logit scale, with bootstrap intervals over images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from model import read
from PIL import Image

from mltta.data import Dataset, load_dataset
from mltta.metrics import average_precision, interval


@torch.inference_mode()
def cosines(
    folder: Path, paths: Sequence[Path], names: Sequence[str], device: torch.device
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


def report(name: str, folder: Path, dataset: Dataset, draws: int, device: torch.device) -> dict[str, object]:
    """Print and return mAP with intervals and the AP of every label."""
    targets, names = dataset.targets, dataset.labels.texts
    raw, scale = cosines(folder, dataset.images, names, device)
    logits = raw * scale
    soft = np.exp(logits - logits.max(1, keepdims=True))
    soft /= soft.sum(1, keepdims=True)
    result: dict[str, object] = {"images": len(dataset), "labels": len(names), "logit_scale": scale}
    per: dict[str, list[float]] = {}
    print(f"{name}: {len(dataset)} images, {len(names)} labels, logit scale {scale:.1f}")
    for kind, scores in (("softmax", soft), ("raw", raw)):
        per[kind] = (100 * average_precision(scores, targets)).tolist()
        point, low, high = interval(scores, targets, draws)
        aps = dict(zip(names, per[kind], strict=True))
        result[kind] = {"mAP": point, "low": low, "high": high, "AP": aps}
        print(f"  mAP {kind:8s} {point:6.2f}   95% interval {low:.2f} to {high:.2f}")
    positives = (targets == 1).sum(0)
    for c, label in enumerate(names):
        soft_ap, raw_ap = per["softmax"][c], per["raw"][c]
        print(f"    {label:16s} {positives[c]:5d}  softmax {soft_ap:6.2f}  raw {raw_ap:6.2f}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with open_clip_config.json and weights"
    )
    parser.add_argument("--voc", type=Path, help="folder that holds VOCdevkit")
    parser.add_argument("--coco", type=Path, help="folder that holds annotations and images")
    parser.add_argument("--coco-split", default="train2017", help="the split of COCO to measure")
    parser.add_argument("--first", type=int, help="only so many images of each set")
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap samples")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    results = {}
    sets = (("VOC2012", "voc2012", args.voc, None), ("COCO", "coco2017", args.coco, args.coco_split))
    for name, key, root, split in sets:
        if root:
            dataset = load_dataset(key, root, split=split).select(slice(args.first))
            results[name] = report(name, args.model, dataset, args.draws, torch.device(args.device))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
