"""Run the fuzz: seeded, by the minute; each case can be run again alone by the seed and number it is told with."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import select
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

#: seconds, and bytes of the whole process, that one case may take
SLOW, LARGE = 10.0, 2_000_000_000
_BATCH = 200


@dataclass
class Counts:
    """What came of the cases."""

    tried: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    #: those that should not be: "target number: what"
    foreign: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    large: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    code_run: int = 0

    @property
    def bad(self) -> int:
        return len(self.foreign + self.slow + self.large + self.crashed) + self.code_run

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(self.tried.items()))
        said = [
            f"{sum(self.tried.values()):,} files tried ({kinds}); {sum(self.read.values()):,} could still be read"
        ]
        said.append(
            f"code run {self.code_run}, foreign exceptions {len(self.foreign)}, over {SLOW:g} s {len(self.slow)}, "
            f"over {LARGE / 1e9:g} GB {len(self.large)}, crashes {len(self.crashed)}"
        )
        return "\n".join(said + self.foreign + self.slow + self.large + self.crashed)


def fuzz(seconds: float, seed: int, only: list[str] | None = None, first: int = 0) -> Counts:
    """Spoil and read files for so long; children do it, so that a crash or a hang is one case's."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import torch

    torch.set_num_threads(1)
    from tests.fuzz.targets import Targets

    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        targets = Targets(Path(folder))
        names = only or list(targets.cases)
        end, number = time.monotonic() + seconds, first
        while time.monotonic() < end:
            number = _batch(targets, names, seed, number, end, counts)
        counts.code_run += targets.marker.exists()
    logging.disable(logging.NOTSET)
    return counts


def _batch(targets, names: list[str], seed: int, number: int, end: float, counts: Counts) -> int:  # type: ignore[no-untyped-def]
    """Some cases in a child; returns the number after the last."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(targets, names, seed, number, end, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        at = number
        while True:
            ready, _, _ = select.select([told], [], [], 6 * SLOW)
            line = told.readline() if ready else b""
            if not line:
                break
            held = json.loads(line)
            at = held["n"] + 1
            what = f"  {held['target']} {held['n']} (seed {seed})"
            counts.tried[held["target"]] += 1
            counts.read[held["target"]] += held["read"]
            counts.foreign += [f"{what}: {held['error']}"] if held["error"] else []
            counts.slow += [f"{what}: {held['seconds']:.1f} s"] if held["seconds"] > SLOW else []
            counts.large += [f"{what}: {held['peak'] / 1e9:.2f} GB"] if held["peak"] > LARGE else []
        if not ready:
            os.kill(child, 9)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        name = names[at % len(names)]
        (counts.slow if not ready else counts.crashed).append(
            f"  {name} {at} (seed {seed}): ended with {status}"
        )
        at += 1
    return at


def _work(targets, names: list[str], seed: int, number: int, end: float, writing: int) -> None:  # type: ignore[no-untyped-def]
    """Case after case, each told when it is done."""
    from mltta.errors import MlttaError

    place = targets.home / f"case-{os.getpid()}"
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders complain in C
    with os.fdopen(writing, "wb") as telling:
        for n in range(number, number + _BATCH):
            if time.monotonic() > end:
                break
            name = names[n % len(names)]
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            rng = random.Random(f"{seed} {name} {n}")
            _forget_peak()
            start, error, read = time.monotonic(), "", False
            try:
                targets.cases[name](rng, place)
                read = True
            except MlttaError:
                pass
            except BaseException as found:
                where = traceback.extract_tb(found.__traceback__)[-1]
                error = f"{type(found).__name__}: {str(found)[:120]!r} ({Path(where.filename).name}:{where.lineno})"
            seconds = time.monotonic() - start
            said = {"n": n, "target": name, "read": read, "error": error, "seconds": seconds, "peak": _peak()}
            telling.write(json.dumps(said).encode() + b"\n")
            telling.flush()
        shutil.rmtree(place, ignore_errors=True)


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", action="append", help="a target, such as images")
    asked = parser.parse_args()
    counts = fuzz(60 * asked.minutes, asked.seed, asked.only, asked.first)
    print(counts)
    sys.exit(counts.bad > 0)


if __name__ == "__main__":
    main()
