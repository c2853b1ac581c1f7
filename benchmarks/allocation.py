"""What keeping freed memory gains on a CPU: 64 views of `mini`, with and without it, in turns.

    python benchmarks/allocation.py [--repeat 5]

Each way runs in a process of its own; a variable of the C library's own switches ours off.
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
    """Median seconds that 64 views take in a fresh process."""
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
    print(f"kept {kept:.2f} s, given back {given_back:.2f} s: {given_back / kept:.2f} times as fast")


if __name__ == "__main__":
    main()
