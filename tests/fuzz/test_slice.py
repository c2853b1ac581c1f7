"""A slice of the standing fuzz: a few thousand spoiled files, the same every time."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import harness
from tests.fuzz.mutate import bytes_of


@pytest.mark.torch
def test_spoiled_files_run_nothing_and_end_in_words():
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "0.25", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "code run 0, foreign exceptions 0, over 10 s 0, over 2 GB 0, crashes 0" in done.stdout
    assert int(done.stdout.split()[0].replace(",", "")) > 50, done.stdout


@pytest.mark.parametrize("name", harness.TARGETS)
def test_the_targets_of_the_coverage_guided_fuzz_read_their_seeds_and_refuse_spoiled_ones(name):
    chance = random.Random(7)
    for seed in harness.seeds(name):
        harness.attempt(name, seed)
        for _ in range(12):
            harness.attempt(name, bytes_of(seed, chance))
