"""Caches of the tests stay out of the user's own; tests of a GPU are skipped where there is none."""

from __future__ import annotations

import getpass
import os
import tempfile
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
