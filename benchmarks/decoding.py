"""Throughput of decoding threads beside a computing thread: files passed to the decoder in pieces or at once.

    python -m benchmarks.decoding --threads 8 --images 48

Pillow passes 64 KiB at a time to a decoder and re-acquires the GIL in between. If another thread of the process is
busy, such as the one that feeds a GPU, each acquisition may take up to 5 ms, Python's switch interval.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.folder import make_photos
from mltta.images import decode
from mltta.images.decode import load_image

PIECE = 1 << 16


@contextmanager
def busy(yes: bool) -> Iterator[None]:
    """Run another thread that computes in the meantime."""
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            sum(range(1000))

    other = threading.Thread(target=count)
    if yes:
        other.start()
    try:
        yield
    finally:
        done.set()
        if yes:
            other.join()


def rate(paths: list[Path], threads: int) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda path: load_image(path, working=True).size, paths))
    return len(paths) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--pixels", default="4000x3000", metavar="WxH")
    args = parser.parse_args()
    width, height = map(int, args.pixels.split("x"))
    print(f"{args.threads} threads, JPEGs of {width} x {height}, photos per second, alternating\n")
    print("| GIL | 64 KiB pieces | at once | 64 KiB pieces | at once |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        paths = make_photos(Path(folder), args.images, (width, height), distinct=4)
        for kept in (False, True):
            row = []
            for size in (PIECE, decode._AT_ONCE) * 2:
                decode._AT_ONCE, was = size, decode._AT_ONCE
                with busy(kept):
                    row.append(rate(paths, args.threads))
                decode._AT_ONCE = was
            name = "busy" if kept else "free"
            print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in row) + " |", flush=True)


if __name__ == "__main__":
    main()
