"""Memory growth and throughput over a million images with cached features.

    python benchmarks/million.py [--images 1000000] [--folder DIR]

A dry run: synthetic features are written to a feature cache, as if all images had been encoded before. The rest is
the usual evaluation: it identifies every image by its bytes, finds it in the cache, scores it with clip, decides which
labels are shown and writes the result, which is then read back and summarized. Memory is the process's anonymous
memory (RssAnon), without mapped files. The exit code is 1 if it grows by more than 64 MB between image 10,000 and
the last.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mltta import Execution, LabelSet, create_method, load_backbone
from mltta.captions.store import CaptionBase
from mltta.data import Dataset
from mltta.data.dataset import Lazy
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.summary import Summary
from mltta.model.backbone import Backbone
from mltta.session.cache import FeatureCache
from mltta.session.prepare import NAME_BYTES

MB_OF_GROWTH = 64
CAPTIONS = [
    "A dog runs along the beach.",
    "Two people ride bicycles past a parked car.",
    "A cat sleeps on the sofa beside a potted plant.",
    "A train leaves the station.",
    "Bottles stand on a table between the chairs.",
]


def image(place: int) -> bytes:
    """Placeholder for an image file: it is identified, but never decoded."""
    return place.to_bytes(8, "big")


def image_id(place: int) -> str:
    return f"image-{place:09d}"


def make_dataset(images: int) -> Dataset:
    """Images created on access, with on average 1.5 of VOC's 20 labels each."""
    labels = LabelSet.of("voc")
    targets = np.random.default_rng(0).random((images, len(labels)), np.float32) < 1.5 / len(labels)
    places = range(images)
    return Dataset("million", labels, Lazy(image_id, places), Lazy(image, places), targets.view(np.int8))


def keep_features(backbone: Backbone, dataset: Dataset, folder: Path) -> None:
    """Fill a cache with random features of every image's only view."""
    (spec,) = create_method("clip", backbone, dataset.labels).needs
    cache, width = FeatureCache(backbone, spec, folder=folder), len(backbone.encode_texts(["dog"])[0])
    generator, step = torch.Generator().manual_seed(0), 10_000
    for start in range(0, len(dataset), step):
        places = range(start, min(start + step, len(dataset)))
        features = F.normalize(torch.randn(len(places), 1, width, generator=generator), dim=-1).half()
        names = [hashlib.blake2b(image(place), digest_size=NAME_BYTES).digest() for place in places]
        cache.write(names, list(features))


def own_memory() -> float:
    """Anonymous memory of this process in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def give_back() -> None:
    """Return memory freed after creating the dataset to the system, because it could hide growth."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def measure(images: int, folder: Path) -> float:
    """Run the evaluation and print its progress; returns the growth in megabytes."""
    backbone = load_backbone("mini", device="cpu")
    print(f"{own_memory():8.1f} MB  model loaded")
    dataset = make_dataset(images)
    keep_features(backbone, dataset, folder / "features")
    give_back()
    print(f"{own_memory():8.1f} MB  {images:,} images listed, features cached")
    mark = min(10_000, images // 2)
    seen: dict[str, Any] = {}

    def progress(done: int, total: int) -> None:
        for name, at in (("mark", mark), ("end", total)):
            if done >= at and name not in seen:
                seen[name] = own_memory(), time.perf_counter()
                print(f"{seen[name][0]:8.1f} MB  after {done:,} images", flush=True)

    done = evaluate(
        dataset,
        backbone,
        ["clip"],
        out=folder,
        captions=CaptionBase.build(CAPTIONS, backbone),
        cache=folder / "features",
        execution=Execution(batch_size=256, workers=0),
        progress=progress,
    )
    if done.counts.cached != images:
        sys.exit(f"{images - done.counts.cached:,} images were not found in the cache")
    summary = Summary(done.results[0], draws=10).as_dict()
    print(f"{own_memory():8.1f} MB  summarized: mAP {summary['mAP']:.2f}")
    (before, start), (after, end) = seen["mark"], seen["end"]
    print(f"{(images - mark) / (end - start):,.0f} images per second; memory grew by {after - before:.1f} MB")
    return after - before


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument(
        "--folder", type=Path, help="temporary folder, 0.9 KB per image (default: the system's)"
    )
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        growth = measure(args.images, Path(folder))
    sys.exit(growth > MB_OF_GROWTH)


if __name__ == "__main__":
    main()
