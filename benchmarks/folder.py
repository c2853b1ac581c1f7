"""Throughput from files: images per second of `mltta tag` and `mltta eval`, compared with already decoded images.

    python -m benchmarks.folder --megapixels 12 --images 600 --method auto clip --device cuda
    python -m benchmarks.folder --pixels 500x375 --images 2000 --method ml-tta --device cuda
    python -m benchmarks.folder --pixels 500x375 --images 2000 --model ViT-B/32 --eval --method clip --device cuda
    python -m benchmarks.folder --megapixels 12 --images 40 --method clip --against ../before/src
    python -m benchmarks.folder --pixels 160x120 --images 100000 --method clip --device cuda --memory

One row per method. "files" is everything from JPEGs on disk to a CSV file, without start-up: the model is loaded and
one batch has been processed. "stream" is the same photos in memory at their working size. "command" is `mltta tag` in
its own process, including start-up; with --against, also the same command of another checkout, before and after.
--memory prints the memory of that process after each tenth of the folder.
The profile is CPU time per photo on one thread, which all decoding threads share.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import mltta
from mltta import Execution, LabelSet, Tagger, load_backbone
from mltta.captions.store import default_captions
from mltta.data import Dataset
from mltta.evaluation.evaluate import evaluate
from mltta.images.budget import open_file
from mltta.images.decode import image_id, load_image
from mltta.model.backbone import Backbone
from mltta.session.features import FeatureStream
from mltta.session.prepare import Photo, Prepare
from mltta.session.scorer import Scorer

IN_MEMORY = 512  # maximum number of images in the stream
PHOTOS = Path(__file__).parents[1] / "examples" / "photos"


def make_photos(folder: Path, count: int, size: tuple[int, int], distinct: int = 16) -> list[Path]:
    """Create JPEGs of quality 90: enlarged photographs with camera noise, repeated under other names."""
    given = sorted(PHOTOS.glob("*.jpg"))
    paths: list[Path] = []
    for i in range(count):
        path = folder / f"{i:06d}.jpg"
        if i < distinct:
            with Image.open(given[i % len(given)]) as photo:
                large = np.asarray(photo.convert("RGB").resize(size, Image.Resampling.BICUBIC), np.int16)
            noise = np.random.default_rng(i).integers(-6, 7, (*large.shape[:2], 1), np.int16)
            Image.fromarray(np.clip(large + noise, 0, 255).astype(np.uint8)).save(path, quality=90)
        else:
            os.link(paths[i % distinct], path)
        paths.append(path)
    return paths


def in_memory(paths: Sequence[Path]) -> list[Image.Image]:
    """The photos at their working size."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda path: load_image(path, working=True), paths))


def rate(work: Callable[[], object], count: int, device: torch.device) -> float:
    """Images per second."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return count / (time.perf_counter() - start)


def write(tagger: Tagger, images: Iterable[object], out: Path) -> None:
    """Write tags to a CSV file, as the command does."""
    with out.open("w", newline="") as file:
        lines = csv.writer(file)
        for tags in tagger.stream(images):
            lines.writerows((tags.image, item["label"], item["score"]) for item in tags)


def tag_rates(backbone: Backbone, method: str, labels: str, paths: Sequence[Path]) -> tuple[float, float]:
    """Rates from files and from images in memory: each stream runs twice, and the second run counts."""
    tagger = Tagger(backbone, labels, method)
    some = paths[: min(len(paths), IN_MEMORY)]
    ready = in_memory(some)
    out = paths[0].parent.parent / "tags.csv"
    sizes = max(1, min(len(some), 2 * backbone.engine.batches().size))
    write(tagger, some[:sizes], out)
    files = rate(lambda: write(tagger, paths, out), len(paths), backbone.device)
    stream = rate(lambda: write(tagger, ready, out), len(ready), backbone.device)
    return files, stream


def eval_rates(backbone: Backbone, method: str, labels: str, paths: Sequence[Path]) -> tuple[float, float]:
    """The same for `evaluate`, storing only results."""
    named, base = LabelSet.load(labels), default_captions(backbone)

    def run(images: Sequence[object], out: str) -> None:
        targets = np.zeros((len(images), len(named)), np.int8)
        data = Dataset("files", named, [str(i) for i in range(len(images))], images, targets)
        with tempfile.TemporaryDirectory() as folder:
            evaluate(data, backbone, [method], captions=base, out=Path(folder) / out, cache=False)

    some = paths[: min(len(paths), IN_MEMORY)]
    ready = in_memory(some)
    run(some[:256], "warm-up")
    files = rate(lambda: run(paths, "files"), len(paths), backbone.device)
    return files, rate(lambda: run(ready, "stream"), len(ready), backbone.device)


def profile(backbone: Backbone, method: str, labels: str, paths: Sequence[Path]) -> str:
    """Milliseconds per photo of each step, one after another, with nothing else running."""
    tagger = Tagger(backbone, labels, method) if backbone.trained else None
    if tagger is None:
        return "not profiled with random weights"
    times: dict[str, float] = {}
    some = list(paths[: min(len(paths), 32)])
    pipeline = FeatureStream(
        backbone, tagger.method.needs, execution=Execution(batch_size=len(some), threads=1)
    )
    on_device = backbone.renderer is not None

    def clock(name: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        if backbone.device.type == "cuda":
            torch.cuda.synchronize()
        times[name] = 1000 * (time.perf_counter() - start) / len(some)

    def read(path: Path) -> bytes:
        file, _ = open_file(str(path))
        with file:
            return file.read()

    data = [read(path) for path in some]
    clock("read", lambda: [read(path) for path in some])
    images = [load_image(one, working=True) for one in data]
    clock("decode", lambda: [load_image(one, working=True) for one in data])
    clock("name", lambda: [image_id(image) for image in images])
    prepare = Prepare(lambda photo: photo, pipeline.specs, backbone.preprocess, on_device=on_device)
    photos = [Photo(i, str(i), image) for i, image in enumerate(images)]
    clock("views" if not on_device else "hand over", lambda: [prepare(photo) for photo in photos])
    clock("prepare + encode", lambda: list(pipeline(photos)))
    features = [item for batch in pipeline(photos) for item in batch]
    scorer = Scorer(tagger.method, tagger.session.question, pipeline, tagger.session.decision)
    scorer(features)()
    clock("method", lambda: scorer(features)())
    scored = scorer(features)()
    clock("tags", lambda: [tagger._tags(one) for one in scored])
    return ", ".join(f"{name} {value:.2f}" for name, value in times.items())


def tag_command(folder: Path, method: str, labels: str, device: str, out: Path) -> list[str]:
    """The `mltta tag` command line."""
    run = [
        sys.executable,
        "-c",
        "import sys; from mltta.cli import main; sys.exit(main())",
        "tag",
        str(folder),
    ]
    return [
        *run,
        "--method",
        method,
        "--labels",
        labels,
        "--device",
        device,
        "-f",
        out.suffix[1:],
        "-o",
        str(out),
    ]


def command(folder: Path, method: str, labels: str, device: str, source: Path) -> float:
    """Seconds of `mltta tag` of a checkout, including start-up."""
    run = tag_command(folder, method, labels, device, folder.parent / f"command-{time.monotonic_ns()}.csv")
    start = time.perf_counter()
    subprocess.run(run, check=True, env={**os.environ, "PYTHONPATH": str(source)}, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def memory(folder: Path, method: str, labels: str, device: str, count: int) -> None:
    """Print the memory of `mltta tag` while it processes a folder; Linux only."""
    out = folder.parent / "memory.jsonl"  # one line per image
    start, done, tenth = time.perf_counter(), 0, 0
    with subprocess.Popen(
        tag_command(folder, method, labels, device, out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        seen = 0
        while process.poll() is None:
            time.sleep(0.2)
            if out.exists():
                with out.open("rb") as file:
                    file.seek(seen)
                    done += (fresh := file.read()).count(b"\n")
                    seen += len(fresh)
            if 10 * done // count > tenth:
                tenth = 10 * done // count
                held = Path(f"/proc/{process.pid}/status").read_text()
                megabytes = int(held.split("RssAnon:")[1].split()[0]) / 1000
                spent = time.perf_counter() - start
                print(f"{done:,} images after {spent:.0f} s: {megabytes:,.0f} MB", flush=True)
    print(
        f"exit {process.returncode}, {count / (time.perf_counter() - start):.0f} images per second including start-up"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--megapixels", type=float, default=12, help="size of the photos, 4:3")
    size.add_argument("--pixels", metavar="WxH")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--method", nargs="+", default=["clip"])
    parser.add_argument("--labels", default="coco")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--eval", action="store_true", help="`mltta eval`, also with random weights")
    parser.add_argument("--no-profile", action="store_true")
    parser.add_argument("--memory", action="store_true", help="print the command's memory after each tenth")
    parser.add_argument("--against", type=Path, help="src folder of another checkout; times commands only")
    args = parser.parse_args()
    wide = round((args.megapixels * 1e6 * 4 / 3) ** 0.5)
    pixels = (wide, round(wide * 3 / 4))
    if args.pixels:
        first, _, second = args.pixels.partition("x")
        pixels = (int(first), int(second))
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "photos"
        folder.mkdir()
        paths = make_photos(folder, args.images, pixels)
        print(f"{args.images} JPEGs of {pixels[0]} x {pixels[1]}, {args.model}", flush=True)
        if args.memory:
            memory(folder, args.method[0], args.labels, args.device, args.images)
            return
        if args.against is not None:
            here = Path(mltta.__file__).parents[1]
            for method in args.method:
                times = {}
                for name, source in (
                    ("before", args.against),
                    ("after", here),
                    ("before again", args.against),
                ):
                    times[name] = command(folder, method, args.labels, args.device, source.resolve())
                    print(f"{method}, {name}: {args.images / times[name]:.2f} images per second", flush=True)
                slower = min(times["before"], times["before again"])
                print(
                    f"{method}: {slower / times['after']:.2f} times as fast as the faster of the two earlier runs"
                )
            return
        backbone = load_backbone(
            args.model, device=args.device, random_weights=args.eval and args.model != "mini"
        )
        rates = eval_rates if args.eval else tag_rates
        print("| method | from files | stream | share |\n|---|---|---|---|")
        for method in args.method:
            files, stream = rates(backbone, method, args.labels, paths)
            print(f"| {method} | {files:.1f} | {stream:.1f} | {files / stream:.2f} |", flush=True)
            if not args.no_profile and not args.eval:
                said = profile(backbone, method, args.labels, paths)
                print(f"\n{method}, ms per photo, one thread: {said}\n", flush=True)


if __name__ == "__main__":
    main()
