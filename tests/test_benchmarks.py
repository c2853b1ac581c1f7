"""Every benchmark that the docs name can be started: what it takes from the library is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py") if file.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.__doc__
    # plain is the reference of the speed benchmark; annotated and curve are parts of auto
    assert callable(getattr(module, "main", None)) or name in ("plain", "annotated", "curve")


def test_benchmarks_that_the_docs_name_exist():
    texts = [file.read_text(encoding="utf-8") for file in (*(ROOT / "docs").glob("*.md"), ROOT / "README.md")]
    named = {name for text in texts for name in re.findall(r"benchmarks[./](\w+)", text)}
    assert named <= set(MODULES)
    assert named
