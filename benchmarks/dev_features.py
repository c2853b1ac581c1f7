"""Encode the views of a benchmark's images once, so that methods can be compared without encoding again.

    python benchmarks/dev_features.py --voc DIR --coco DIR --out DIR [--model mini] [--views 64] [--device auto]

Writes OUT/<dataset>.<n>.safetensors with half-precision features (N, views, D), 512 images a file. The views are
those of `mltta tag`: the same seed, the same image ids.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from mltta import load_backbone
from mltta.data import Dataset
from mltta.data.coco import load_coco
from mltta.data.voc import load_voc
from mltta.encode import render
from mltta.images import load_image
from mltta.views import ViewSpec

IMAGES_PER_FILE = 256


def datasets(args: argparse.Namespace) -> list[Dataset]:
    """The benchmarks whose folders were given."""
    return [load(folder) for load, folder in ((load_voc, args.voc), (load_coco, args.coco)) if folder]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--voc", type=Path, help="folder that holds VOCdevkit")
    parser.add_argument("--coco", type=Path, help="folder that holds annotations/ and the images")


def add_feature_arguments(parser: argparse.ArgumentParser) -> None:
    """What a comparison on encoded views takes: the benchmarks, their features, and the model behind them."""
    add_arguments(parser)
    parser.add_argument("--features", type=Path, required=True, help="folder that dev_features.py wrote")
    parser.add_argument("--model", default="mini")


def encode(dataset: Dataset, model: str, views: int, device: str, limit: int | None, out: Path) -> None:
    """Encode a dataset's views and write them as they come."""
    backbone, spec = load_backbone(model, device=device), ViewSpec(count=views)
    images = dataset.images[:limit]

    def prepare(image: object) -> torch.Tensor:
        return render(load_image(image), [spec], backbone.preprocess)[spec]

    start, done, part = time.perf_counter(), 0, []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = iter(images)
        ahead = deque(pool.submit(prepare, image) for image in islice(waiting, 32))
        while ahead:
            part.append(backbone.encode_images(ahead.popleft().result()).half().cpu())
            ahead.extend(pool.submit(prepare, image) for image in islice(waiting, 1))
            done += 1
            if len(part) == IMAGES_PER_FILE or done == len(images):
                number = (done - 1) // IMAGES_PER_FILE
                save_file({"features": torch.stack(part)}, out / f"{dataset.name}.{number:03d}.safetensors")
                part = []
                print(f"{dataset.name} {done}/{len(images)} {time.perf_counter() - start:.0f} s", flush=True)


def read_features(folder: Path, dataset: Dataset) -> torch.Tensor:
    """Features (N, views, D) of a dataset, in float32; N may be fewer than its images."""
    files = sorted(folder.glob(f"{dataset.name}.*.safetensors"))
    if not files:
        raise SystemExit(f"no features of {dataset.name} in {folder}: run benchmarks/dev_features.py first")
    return torch.cat([load_file(file)["features"] for file in files]).float()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, help="only the first images")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for dataset in datasets(args):
        encode(dataset, args.model, args.views, args.device, args.limit, args.out)


if __name__ == "__main__":
    main()
