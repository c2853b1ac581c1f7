"""Accuracy cost of the optimizations: mAP of the float32 reference and of the optimized path at default precision.

    python benchmarks/precision.py --voc DIR [--first N] [--device auto]

The reference (benchmarks/plain.py) renders views with Pillow and processes one image and 77 tokens at a time, all in
float32. The optimized path is `evaluate` with defaults: on a GPU, views rendered on the device, image tower in
bfloat16, many images at once, features cached in half precision.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.plain import Plain
from mltta import load_backbone
from mltta.captions.labelled import label_captions
from mltta.captions.store import default_captions
from mltta.cli.progress import bar_on_terminal
from mltta.data import Dataset, load_dataset
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.summary import Summary
from mltta.images.decode import load_image
from mltta.images.specs import ViewSpec
from mltta.images.views import render_views
from mltta.metrics import mean_average_precision

METHODS = ("clip", "tpt", "ml-tta")
SPEC = ViewSpec(count=64)


def reference_scores(dataset: Dataset, device: str) -> dict[str, Tensor]:
    """Scores (N, C) of the reference for each method."""
    torch.backends.cudnn.allow_tf32 = False
    backbone = load_backbone("mini", device=device, image_dtype=torch.float32)
    captions = label_captions(dataset.labels, backbone, default_captions(backbone))
    reference = Plain(backbone, dataset.labels, captions, row_by_row=False)
    found: dict[str, list[Tensor]] = {name: [] for name in METHODS}

    def prepare(source: Any) -> Tensor:
        return torch.from_numpy(render_views(load_image(source), SPEC, backbone.preprocess))

    with ThreadPoolExecutor(os.cpu_count()) as pool, bar_on_terminal() as bar:
        task = bar.add_task("reference", total=len(dataset))
        waiting = iter(dataset.images)
        ahead = deque(pool.submit(prepare, source) for source in islice(waiting, 32))
        while ahead:
            pixels = ahead.popleft().result().to(backbone.device)
            ahead.extend(pool.submit(prepare, source) for source in islice(waiting, 1))
            for name in METHODS:
                found[name].append(reference.method(name)(pixels).detach().cpu())
            bar.advance(task)
    torch.backends.cudnn.allow_tf32 = True
    return {name: torch.stack(scores) for name, scores in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voc", type=Path, required=True, help="folder that contains VOCdevkit")
    parser.add_argument("--first", type=int, help="use only the first N images")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    dataset = load_dataset("voc2012", args.voc).select(slice(args.first))
    reference = reference_scores(dataset, args.device)
    backbone = load_backbone("mini", device=args.device)
    with tempfile.TemporaryDirectory() as folder:
        fast = [Summary(r) for r in evaluate(dataset, backbone, METHODS, out=folder, cache=False).results]
        print(f"{len(dataset)} images, mini, optimized: {backbone.arithmetic} on {backbone.device.type}\n")
        print("| method | reference, float32 | optimized | difference |\n|---|---|---|---|")
        for name, summary in zip(METHODS, fast, strict=True):
            plain = mean_average_precision(reference[name].numpy(), dataset.targets)
            print(f"| {name} | {plain:.3f} | {summary.map:.3f} | {summary.map - plain:+.3f} |")


if __name__ == "__main__":
    main()
