"""Cold-start latency of tagging one photo, compared with importing open_clip, measured in one run.

python benchmarks/cold_start.py [--photo examples/photos/cat.jpg] [--repeat 3]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path


def seconds(command: list[str], repeat: int) -> float:
    """Median wall-clock time of a command."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photo", type=Path, default=Path("examples/photos/cat.jpg"))
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    tag = [sys.executable, "-m", "mltta", "tag", str(args.photo)]
    commands = {
        "import open_clip": [sys.executable, "-c", "import open_clip"],
        "tag, --method clip": [*tag, "--method", "clip"],
        "tag, all 64 views": [*tag, "--method", "ml-tta"],
    }
    base = None
    for name, command in commands.items():
        taken = seconds(command, args.repeat)
        base = base if base is not None else taken
        print(f"{name:<20} {taken:6.2f} s   {taken - base:+.2f} s")


if __name__ == "__main__":
    main()
