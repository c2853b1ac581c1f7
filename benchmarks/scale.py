"""Clusters: overhead of Ray compared with a plain run, and a simple model that predicts cluster throughput.

    python -m benchmarks.scale overhead --images 300          # plain, --ray with one worker, plain again
    python -m benchmarks.scale model --images 120             # stage costs, predicted and measured for 1, 2, 4 workers
    python -m benchmarks.scale stages --images 16 --pixels 4000x3000
    python -m benchmarks.scale rows --rows 1000000            # two workers, without encoder
    python -m benchmarks.scale sizing --gpu-ms 0.62 --cpu-ms 5 --megabytes 0.1    # hours and cost

All but the last start Ray on this machine. Start-up is excluded: rates count from the end of each worker's first shard,
and plain runs from the same number of photos. "rows" generates features from row numbers and scores them by one
product with the labels' features, instead of decoding, encoding and a method; everything else is as usual.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.folder import make_photos
from mltta.distributed import Size, tag
from mltta.distributed.plan import SMALLEST
from mltta.session.execution import Execution, cores
from mltta.tagger import Tagger, Tags

PIXELS = (500, 375)


@dataclass(frozen=True)
class Stages:
    """Seconds of one thread per photo, and the overhead per shard."""

    read: float
    decode: float
    views: float
    encode: float
    method: float
    shard: float = 0.0

    @property
    def photo(self) -> float:
        return self.read + self.decode + self.views + self.encode + self.method


def predicted(stages: Stages, workers: int, threads: int, cpus: int, shard: int = SMALLEST) -> float:
    """Photos per second: one thread per core, each running all stages of its photos."""
    return min(workers * threads, cpus) / (stages.photo + stages.shard / shard)


def slowest(rates: dict[str, float]) -> tuple[str, float]:
    """The bottleneck stage, if stages run in parallel on different parts of a machine."""
    return min(rates.items(), key=lambda item: item[1])


def plain_rate(tagger: Tagger, paths: list[Path]) -> float:
    """Photos per second of a plain run, after the size of the first shard."""
    stream = tagger.stream(paths)
    for _ in islice(stream, SMALLEST):
        pass
    start = time.perf_counter()
    left = sum(1 for _ in stream)
    return left / (time.perf_counter() - start)


def ray_rate(build: Any, sources: list[str], out: Path, size: Size, shard: int = SMALLEST) -> float:
    """Photos per second of workers, from each one's first shard to the last."""
    ended: dict[Any, list[tuple[float, int]]] = {}

    def heard(told: Any, plan: Any) -> None:
        if told is not None:
            ended.setdefault(told.worker, []).append((told.at, told.part.images))

    tag(build, sources, str(out), size=size, shard_size=shard, address="local", progress=heard)
    # workers' clocks, because reports arrive in groups; each counts from its own first shard
    first = [min(own) for own in ended.values()]
    last = max(at for own in ended.values() for at, _ in own)
    photos = sum(images for own in ended.values() for _, images in own) - sum(images for _, images in first)
    return photos / (last - sum(at for at, _ in first) / len(first))


def overhead(images: int, folder: Path) -> None:
    paths = make_photos(folder / "photos", images, PIXELS, distinct=images)
    tagger = Tagger("mini", "coco")
    rates = [plain_rate(tagger, paths)]
    rates.append(ray_rate(tagger, [str(folder / "photos")], folder / "tags", Size(1)))
    rates.append(plain_rate(tagger, paths))
    print("| plain | --ray, one worker | plain again | fraction of the mean | load |\n|---|---|---|---|---|")
    share = rates[1] / ((rates[0] + rates[2]) / 2)
    said = " | ".join(f"{rate:.2f}" for rate in rates)
    print(f"| {said} | {share:.2f} | {os.getloadavg()[0]:.1f} |", flush=True)


def measured_stages(tagger: Tagger, paths: list[Path]) -> Stages:
    """Each stage separately on one thread, in CPU time of the process, independent of the machine's load."""
    from mltta.images.decode import load_image
    from mltta.model.torch_engine import encode
    from mltta.session.features import FeatureStream
    from mltta.session.prepare import Photo, Prepare
    from mltta.session.scorer import Scorer

    def cost(work: Callable[[], Any]) -> tuple[Any, float]:
        start = time.process_time()
        found = work()
        return found, (time.process_time() - start) / len(paths)

    data, read = cost(lambda: [path.read_bytes() for path in paths])
    images, decode = cost(lambda: [load_image(one, working=True) for one in data])
    pipeline = FeatureStream(tagger.backbone, tagger.method.needs, execution=Execution(1, threads=1))
    prepare = Prepare(lambda photo: photo, pipeline.specs, tagger.backbone.preprocess)
    photos = [Photo(i, str(i), image) for i, image in enumerate(images)]
    ready, views = cost(lambda: [prepare(photo) for photo in photos])
    _, encoding = cost(lambda: [encode(tagger.backbone, [one]) for one in ready])
    features = [item for batch in pipeline(photos) for item in batch]
    scorer = Scorer(tagger.method, tagger.session.question, pipeline, tagger.session.decision)
    _, method = cost(lambda: [tagger._tags(one) for item in features for one in scorer([item])()])
    return Stages(read, decode, views, encoding, method)


def stages_of(images: int, folder: Path, pixels: tuple[int, int] = PIXELS) -> tuple[Tagger, Stages]:
    paths = make_photos(folder / "photos", images, pixels, distinct=images)
    tagger = Tagger("mini", "coco")
    list(tagger.stream(paths[:8]))
    stages = measured_stages(tagger, paths[: min(images, 32)])
    parts = ("read", "decode", "views", "encode", "method")
    said = ", ".join(f"{name} {1000 * getattr(stages, name):.2f}" for name in parts)
    size = sum(path.stat().st_size for path in paths) / len(paths) / 1e6
    print(
        f"JPEGs of {pixels[0]} x {pixels[1]}, {size:.2f} MB; ms of CPU per photo, one thread: {said}; "
        f"{1000 * stages.photo:.1f} in total",
        flush=True,
    )
    return tagger, stages


def model(images: int, folder: Path) -> None:
    tagger, stages = stages_of(images, folder)
    print(
        "| workers | threads | predicted | measured | measured / predicted | load |\n|---|---|---|---|---|---|"
    )
    for workers in (1, 2, 4):
        threads = max(1, cores() // workers)
        want = predicted(stages, workers, threads, cores(), shard=8)
        got = ray_rate(tagger, [str(folder / "photos")], folder / f"tags{workers}", Size(workers), shard=8)
        load = os.getloadavg()[0]
        print(
            f"| {workers} | {threads} | {want:.2f} | {got:.2f} | {got / want:.2f} | {load:.1f} |", flush=True
        )


class MadeUp:
    """Replaces a tagger: features from row numbers, scores by one product with the labels' features."""

    def __init__(self, labels: int = 80, dim: int = 512):
        self.names = [f"label {i}" for i in range(labels)]
        self.text = np.random.default_rng(0).standard_normal((dim, labels), np.float32) / dim**0.5  # (D, C)
        self.method = SimpleNamespace(online=False)
        device = SimpleNamespace(type="made up")
        self.backbone = SimpleNamespace(device=device)

    def about(self) -> dict[str, Any]:
        return {"model": "none: synthetic features", "labels": self.names}

    def stream(self, photos: Iterable[Any]) -> Iterator[Tags]:
        left, dim = iter(photos), len(self.text)
        while some := list(islice(left, 256)):
            drawn = b"".join(hashlib.shake_128(photo.source).digest(2 * dim) for photo in some)
            features = (
                np.frombuffer(drawn, np.int16).reshape(len(some), dim).astype(np.float32) / 2**15
            )  # (B, D)
            scores = 1 / (1 + np.exp(-features @ self.text))  # (B, C)
            for photo, row in zip(some, scores, strict=True):
                best = np.argsort(-row)[:5]
                items = [{"label": self.names[i], "score": float(row[i])} for i in best]
                yield Tags(items, present=[item["label"] for item in items[:2]], image=photo.id)


def resident() -> float:
    """Resident memory of this process, in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def rows(count: int, folder: Path) -> float:
    import pyarrow as pa
    from pyarrow import parquet

    file, size = folder / "rows.parquet", 100_000
    schema = pa.schema([("jpg", pa.binary())])
    with parquet.ParquetWriter(file, schema) as writer:
        for start in range(0, count, size):
            numbers = range(start, min(count, start + size))
            writer.write_table(
                pa.table({"jpg": [i.to_bytes(8, "big") for i in numbers]}, schema), row_group_size=1024
            )
    some = [SimpleNamespace(id=str(i), source=i.to_bytes(8, "big")) for i in range(20_000)]
    start = time.process_time()
    made_up = sum(1 for _ in MadeUp().stream(some))
    alone = (time.process_time() - start) / made_up
    seen: list[tuple[int, float]] = []
    done, begun, worked = 0, 0.0, 0.0

    def heard(told: Any, plan: Any) -> None:
        nonlocal done, begun, worked
        if told is None:
            return
        begun = begun or time.perf_counter()
        done, worked = done + told.part.images, worked + told.part.seconds
        if not seen or done - seen[-1][0] >= count // 20:
            seen.append((done, resident()))
            print(f"{done:,} rows, driver {seen[-1][1]:.0f} MB", flush=True)

    found = tag(MadeUp, [str(file)], str(folder / "tags"), size=Size(2), address="local", progress=heard)
    wall = time.perf_counter() - begun
    assert found.images == count
    early = next(mb for at, mb in seen if at >= count // 10)
    growth = seen[-1][1] - early
    print(
        f"{count:,} rows in {found.count:,} shards, {wall:.0f} s, {count / wall:,.0f} rows per second, two workers"
    )
    print(f"driver: {early:.0f} MB after a tenth, {seen[-1][1]:.0f} MB at the end: {growth:+.0f} MB")
    print(
        f"per row: {1e6 * alone:.0f} µs of CPU to generate and score, {1e6 * worked / count:.0f} µs in a worker with "
        f"reading and writing; {1e6 * (2 * wall - worked) / count:.0f} µs of a worker's time between shards; load "
        f"{os.getloadavg()[0]:.1f}"
    )
    return growth


def sizing(
    gpu_ms: float, cpu_ms: float, megabytes: float, gpu_price: float, cpu_price: float, beside: int
) -> None:
    """Hours and cost for 1, 10 and 100 million photos, with GPUs and some cores each, or with cores only."""
    rates = {
        "decoding" if gpu_ms else "all stages": beside * 1000 / cpu_ms,
        "reading at 10 Gbit/s": 1250 / megabytes,
    }
    if gpu_ms:
        rates["encoding"] = 1000 / gpu_ms
    name, rate = slowest(rates)
    price = beside * cpu_price + (gpu_price if gpu_ms else 0)
    machine = f"machine of {'a GPU and ' if gpu_ms else ''}{beside} cores"
    said = ", ".join(f"{stage} {value:,.0f}" for stage, value in rates.items())
    print(f"photos per second of a {machine}, at {price:.2f} per hour: {said}; bottleneck: {name}")
    print("| photos | machine hours | with 8 machines | cost |\n|---|---|---|---|")
    for count in (1e6, 1e7, 1e8):
        hours = count / rate / 3600
        print(f"| {count:,.0f} | {hours:,.1f} | {hours / 8:,.2f} h | {hours * price:,.0f} |")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["overhead", "model", "stages", "rows", "sizing"])
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--pixels", metavar="WxH", default="500x375", help="size of the photos (for stages)")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--gpu-ms", type=float, default=0.62, help="GPU milliseconds per photo (0: no GPU)")
    parser.add_argument(
        "--cpu-ms", type=float, default=10.0, help="core milliseconds per photo: read, decode"
    )
    parser.add_argument("--megabytes", type=float, default=0.1, help="megabytes per photo")
    parser.add_argument("--gpu-price", type=float, default=4.0, help="price of a GPU per hour")
    parser.add_argument("--cpu-price", type=float, default=0.05, help="price of a core per hour")
    parser.add_argument("--cores", type=int, default=16, help="cores per GPU")
    args = parser.parse_args(argv)
    if args.what == "sizing":
        sizing(args.gpu_ms, args.cpu_ms, args.megabytes, args.gpu_price, args.cpu_price, args.cores)
        return
    with tempfile.TemporaryDirectory() as top:
        (Path(top) / "photos").mkdir()
        if args.what == "rows":
            sys.exit(rows(args.rows, Path(top)) > 100)
        if args.what == "stages":
            wide, _, tall = args.pixels.partition("x")
            stages_of(args.images, Path(top), (int(wide), int(tall)))
            return
        (overhead if args.what == "overhead" else model)(args.images, Path(top))


if __name__ == "__main__":
    main()
