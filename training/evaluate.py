"""Zero-shot mAP of a model on VOC2012 and COCO: for evaluation only, never for training or model selection.

    python -m training.evaluate --model RUN --voc VOC --coco COCO [--captions texts.txt] [--out figures.json]

One vector: prompt "a photo of a {}.", the model's own preprocessing, scores by raw cosine and by softmax over the
labels at the checkpoint's logit scale. Local views: the mean of seven templates, windows at 224 pixels (fast) and at
336 (auto), with and without a voting caption base. With bootstrap intervals over images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from mltta.captions.nouns import label_matches
from mltta.data import Dataset, load_dataset
from mltta.metrics import average_precision, interval
from training.model import read
from training.rule import AUTO, Scale, Votes, answers, views
from training.wording import PLAIN, SIMPLE

BATCH = 64
Scores = dict[str, NDArray[np.float32]]


def batches(paths: Sequence[Path], sizes: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Yield pixels of the images at several sizes, squashed to squares, in batches."""

    def load(path: Path) -> list[Tensor]:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
            sized = [np.asarray(rgb.resize((s, s), Image.Resampling.BICUBIC)).copy() for s in sizes]
        return [torch.from_numpy(pixels).permute(2, 0, 1) for pixels in sized]

    with ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), BATCH):
            loaded = list(pool.map(load, paths[start : start + BATCH]))
            yield {s: torch.stack(own) for s, own in zip(sizes, zip(*loaded, strict=True), strict=True)}


class Answers:
    """Scores of a model for a list of labels, in several ways."""

    def __init__(
        self, folder: Path, device: torch.device, captions: Sequence[str] = (), scales: Sequence[Scale] = AUTO
    ) -> None:
        model, self.tokenizer, _ = read(folder)
        self.model: CLIP = model.to(device)
        self.device, self.captions, self.scales = device, captions, scales
        self.scale = model.logit_scale.exp().item()
        self.caption_features = self.encode(captions) if captions else None

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Unit text features."""
        parts = [texts[i : i + 512] for i in range(0, len(texts), 512)]
        tokens = (self.tokenizer(list(part)).to(self.device) for part in parts)
        return torch.cat([self.model.encode_text(own, normalize=True) for own in tokens])

    @torch.inference_mode()
    def __call__(self, dataset: Dataset) -> Scores:
        """Scores (images, labels) for each way."""
        names = dataset.labels.texts
        plain = self.encode([PLAIN.format(n) for n in names])
        simple = self.encode([t.format(n) for n in names for t in SIMPLE])
        text = F.normalize(simple.reshape(len(names), len(SIMPLE), -1).mean(1), dim=-1)
        votes = self._votes(dataset)
        ways = {"": None} if votes is None else {"": None, " with captions": votes}
        rows: dict[str, list[Tensor]] = {}
        for own in batches(dataset.images, [s.size for s in self.scales]):
            pictures = {size: pixels.to(self.device).float() / 127.5 - 1 for size, pixels in own.items()}
            seen = views(self.model, pictures, self.scales)
            raw = seen[0][:, 0] @ plain.T  # the first scale is the whole image
            found = {"softmax": (self.scale * raw).softmax(1), "raw": raw}
            for kind, voters in ways.items():
                every = answers(seen, text, self.model.logit_scale.exp(), voters)
                found |= {f"fast{kind}": every[1], f"auto{kind}": every[-1]}
            for way, scores in found.items():
                rows.setdefault(way, []).append(scores.float().cpu())
        return {way: torch.cat(parts).numpy() for way, parts in rows.items()}

    def _votes(self, dataset: Dataset) -> Votes | None:
        if self.caption_features is None:
            return None
        names = torch.zeros(len(self.captions), len(dataset.labels))
        for row, found in enumerate(label_matches(self.captions, dataset.labels)):
            names[row, list(found)] = 1
        return Votes(self.caption_features, names.to(self.device))


def report(name: str, answers: Answers, dataset: Dataset, draws: int) -> dict[str, Any]:
    """Print and return mAP with intervals, and the AP of every label."""
    targets, names = dataset.targets, dataset.labels.texts
    print(f"{name}: {len(dataset)} images, {len(names)} labels, logit scale {answers.scale:.1f}")
    result: dict[str, Any] = {"images": len(dataset), "labels": len(names), "logit_scale": answers.scale}
    for way, scores in answers(dataset).items():
        aps = (100 * average_precision(scores, targets)).tolist()
        point, low, high = interval(scores, targets, draws)
        result[way] = {"mAP": point, "low": low, "high": high, "AP": dict(zip(names, aps, strict=True))}
        print(f"  mAP {way:20s} {point:6.2f}   95% interval {low:.2f} to {high:.2f}")
    ways, positives = [w for w, own in result.items() if isinstance(own, dict)], (targets == 1).sum(0)
    print(f"    {'AP':16s} {'images':>6s}  " + "  ".join(f"{w[:18]:>18s}" for w in ways))
    for c, label in enumerate(names):
        values = "  ".join(f"{result[w]['AP'][label]:18.2f}" for w in ways)
        print(f"    {label:16s} {positives[c]:6d}  {values}")
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate a model on the given datasets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with open_clip_config.json and weights"
    )
    parser.add_argument("--voc", type=Path, help="folder that contains VOCdevkit")
    parser.add_argument("--coco", type=Path, help="folder that contains annotations and images")
    parser.add_argument("--coco-split", default="train2017", help="COCO split to evaluate")
    parser.add_argument("--captions", type=Path, help="sentences that vote, one per line")
    parser.add_argument("--first", type=int, help="use only the first N images of each set")
    parser.add_argument("--draws", type=int, default=1000, help="number of bootstrap samples")
    parser.add_argument(
        "--views", type=Scale.parse, nargs="+", default=AUTO, help="such as 196 224x3x1 336x3x1"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args(argv)
    captions = args.captions.read_text(encoding="utf-8").splitlines() if args.captions else ()
    answers = Answers(args.model, torch.device(args.device), captions, args.views)
    results = {}
    sets = (("VOC2012", "voc2012", args.voc, None), ("COCO", "coco2017", args.coco, args.coco_split))
    for name, key, root, split in sets:
        if root:
            dataset = load_dataset(key, root, split=split).select(slice(args.first))
            results[name] = report(name, answers, dataset, args.draws)
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
