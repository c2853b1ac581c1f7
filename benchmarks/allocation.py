"""Gain of reusing freed memory on a CPU: 64 views of `mini`, with and without it, alternating.

    python benchmarks/allocation.py [--repeat 5]

Each variant runs in its own process; an environment variable of the C library disables ours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

CODE = """
import time, torch
from mltta import load_backbone
backbone = load_backbone("mini", device="cpu")
views = torch.randn(64, 3, backbone.preprocess.size, backbone.preprocess.size)
backbone.encode_images(views)
times = []
for _ in range({repeat}):
    start = time.perf_counter()
    backbone.encode_images(views)
    times.append(time.perf_counter() - start)
print(sorted(times)[len(times) // 2])
"""


def seconds(repeat: int, **environment: str) -> float:
    """Median seconds for 64 views in a fresh process."""
    command = [sys.executable, "-c", CODE.format(repeat=repeat)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    kept, given_back = seconds(repeat), seconds(repeat, MALLOC_ARENA_TEST="8")
    print(f"memory reused: {kept:.2f} s, returned: {given_back:.2f} s: {given_back / kept:.2f} times as fast")


if __name__ == "__main__":
    main()
