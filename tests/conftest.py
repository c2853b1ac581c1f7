"""Caches of the tests stay out of the user's own; tests of a GPU are skipped where there is none."""

from __future__ import annotations

import getpass
import json
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import settings

os.environ.setdefault("MLTTA_CACHE", str(Path(tempfile.gettempdir()) / f"mltta-tests-{getpass.getuser()}"))
settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many blocks of the documentation were run, and why the others were not."""
    passed = terminalreporter.stats.get("passed", [])
    told = [json.loads(value) for one in passed for name, value in one.user_properties if name == "blocks"]
    if told:
        why = sum((Counter(page["why"]) for page in told), Counter[str]())
        reasons = ", ".join(f"{reason} {count}" for reason, count in why.most_common())
        ran = sum(page["ran"] for page in told)
        terminalreporter.write_line(
            f"documentation: {ran} blocks of {len(told)} pages were run, {why.total()} not: {reasons}"
        )
