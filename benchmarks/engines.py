"""PyTorch, ONNX Runtime and int8 side by side: scores on datasets, and the time and memory of `mltta tag`.

    python -m benchmarks.engines --voc VOCdevkit --coco coco [--first 500]
    python -m benchmarks.engines --runs 10 --photos 200 [--pixels 500x375] [--against ../before/src]

Scores are compared with those of PyTorch. Runs alternate. "one photo" is a process that tags one photo, start-up
included; "folder" is a process that tags so many photos into a CSV file. Each line has the median of the runs.
--against adds another checkout.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.folder import make_photos
from mltta import Dataset, Result, evaluate, load_backbone, load_dataset
from mltta.evaluation.summary import Summary

METHODS = ("auto", "clip")
#: engine, and precision of the image tower
ENGINES = {"torch": ("torch", "float32"), "onnx": ("onnx", "float32"), "int8": ("onnx", "int8")}
SOURCE = Path(__file__).parents[1] / "src"


def compare(dataset: Dataset) -> None:
    """Print a line per method and engine: the largest difference of scores, mAP and F1."""
    results: list[list[Result]] = []
    with tempfile.TemporaryDirectory() as out:
        for name, (engine, dtype) in ENGINES.items():
            backbone = load_backbone("mini", device="cpu", engine=engine, image_dtype=dtype)
            results.append(evaluate(dataset, backbone, METHODS, out=Path(out) / name, cache=False).results)
        for method, *own in zip(METHODS, *results, strict=True):
            for name, one in zip(ENGINES, own, strict=True):
                found, apart = Summary(one), np.abs(own[0].shown() - one.shown()).max()
                said = f"mAP {found.map:.2f}, F1 {found.sets.f1:.4f}, largest difference {apart:.1e}"
                print(f"{dataset.name} {method}, {len(dataset):,} images, {name:<5} {said}", flush=True)


def timed(source: Path, engine: tuple[str, str] | None, photos: Sequence[Path]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak MB of one `mltta tag`."""
    with tempfile.TemporaryDirectory() as out:
        more = ["-o", f"{out}/tags.csv"] if len(photos) > 1 else []
        more += ["--engine", engine[0], "--dtype", engine[1]] if engine else []
        names = [str(photos[0].parent if len(photos) > 1 else photos[0])]
        line = [sys.executable, "-m", "mltta", "tag", *names, "-q", "--device", "cpu", *more]
        start = time.perf_counter()
        with open(os.devnull, "w") as nothing:
            process = subprocess.Popen(line, stdout=nothing, env={**os.environ, "PYTHONPATH": str(source)})
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0, line
        return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def race(title: str, photos: Sequence[Path], runs: int, against: Path | None) -> None:
    """Print a line per engine, of runs that alternate."""
    kinds: list[tuple[str, Path, tuple[str, str] | None]] = [
        (name, SOURCE, how) for name, how in ENGINES.items()
    ]
    if against is not None:
        kinds.append(("before", against, None))
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name, *_ in kinds}
    for _ in range(runs):
        for name, source, engine in kinds:
            found[name].append(timed(source, engine, photos))
    for name, own in found.items():
        wall, cpu, memory = (statistics.median(column) for column in zip(*own, strict=True))
        each = f", {len(photos) / wall:.1f} photos/s" if len(photos) > 1 else ""
        print(f"{title:<22} {name:<7} {wall:6.2f} s, {cpu:6.2f} CPU s, {memory:5.0f} MB{each}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--voc", help="VOCdevkit")
    parser.add_argument("--coco", help="folder with annotations and train2017")
    parser.add_argument("--first", type=int, help="only so many images of each")
    parser.add_argument("--runs", type=int, default=0, help="runs of one photo; a folder has a third")
    parser.add_argument("--photos", type=int, default=0, help="photos of the folder")
    parser.add_argument("--pixels", default="500x375")
    parser.add_argument("--against", type=Path, help="the src of another checkout")
    args = parser.parse_args(argv)
    given = [("voc2012", args.voc, {}), ("coco2017", args.coco, {"split": "train2017"})]
    for name, folder, how in given:
        if folder:
            compare(load_dataset(name, folder, **how).select(slice(args.first)))
    width, height = map(int, args.pixels.split("x"))
    with tempfile.TemporaryDirectory() as place:
        photos = make_photos(Path(place), max(1, args.photos), (width, height)) if args.runs else []
        if args.runs:
            race("one photo", photos[:1], args.runs, args.against)
        if args.photos and args.runs:
            race(f"{args.photos} photos, {args.pixels}", photos, max(1, args.runs // 3), args.against)


if __name__ == "__main__":
    main()
