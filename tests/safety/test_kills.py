"""kill -9 at random moments, by the dozen: the same command goes on, and ends as an undisturbed run ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from mltta.evaluation.results import find_results
from tests.evaluation.scene import bits
from tests.safety.many import ROOT
from tests.safety.test_writing import commands

KILLS = 13  # of each command


def run(command: list[object], cache: Path, kill_after: float | None = None) -> tuple[int, float]:
    """Its exit code, and how long it took; killed after so many seconds, if it still runs then."""
    environment = os.environ | {"MLTTA_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "mltta", *map(str, command)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment,
    ) as process:  # fmt: skip
        try:
            process.wait(kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.returncode, time.monotonic() - start


def ending(out: Path) -> Mapping[str, object]:
    """What a run leaves: scores to the bit where it evaluates, else the bytes of its files."""
    results = find_results([out]) if any(out.rglob("scores.f32")) else []
    if results:
        return {result.run["method"]: bits(result) for result in results}
    return {file.name: file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


@pytest.mark.soak
@pytest.mark.parametrize("which", ["eval", "generate"])
def test_thirteen_kills_at_random_moments_change_nothing(tmp_path, which):
    command = commands(tmp_path)[which]
    out, draw = tmp_path / "out", random.Random(which)
    out.mkdir()
    code, whole = run(command, tmp_path / "cache 0")
    assert code == 0
    want = ending(out)
    assert want
    out.rename(tmp_path / "undisturbed")
    out.mkdir()
    killed = 0
    for _ in range(10 * KILLS):
        code, _ = run(command, tmp_path / "cache 1", kill_after=whole * draw.uniform(0.5, 1.1))
        killed += code == -signal.SIGKILL
        if killed == KILLS:
            break
        if code != -signal.SIGKILL:  # done in time, or refused as the one before was killed when it was done
            assert ending(out) == want
            out.rename(tmp_path / f"done {time.monotonic_ns()}")
            out.mkdir()
    assert killed == KILLS
    run(command, tmp_path / "cache 1")
    assert ending(out) == want
