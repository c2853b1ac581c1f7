"""Caches of the tests stay out of the user's own; tests of a GPU, or of PyTorch, are skipped where there is none.

Without PyTorch, a file that imports it is skipped, and so is a test that ends in `NeedsTorch`. Tests marked as light
are never skipped: they list what the light install can do.
"""

from __future__ import annotations

import getpass
import json
import os
import tempfile
from collections import Counter
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from mltta.errors import NeedsTorch

HAS_TORCH = find_spec("torch") is not None

os.environ.setdefault("MLTTA_CACHE", str(Path(tempfile.gettempdir()) / f"mltta-tests-{getpass.getuser()}"))
settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    if item.get_closest_marker("gpu"):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("there is no CUDA device here")
    if item.get_closest_marker("torch") and not HAS_TORCH:
        pytest.skip("there is no PyTorch here")
    try:
        return (yield)
    except Exception as error:  # of a fixture
        if not HAS_TORCH and lacks(error):
            pytest.skip(str(error))
        raise


def lacks(error: BaseException | None) -> bool:
    """Whether an error says that this is the light install, and no more than that."""
    if isinstance(error, ModuleNotFoundError):
        return find_spec((error.name or "").partition(".")[0]) is None
    return isinstance(error, NeedsTorch)


class Module(pytest.Module):
    """A file of tests; skipped where it imports what is not installed."""

    def _getobj(self) -> Any:
        try:
            return super()._getobj()
        except self.CollectError as error:
            if lacks(error.__cause__):
                pytest.skip(str(error.__cause__), allow_module_level=True)
            raise


if not HAS_TORCH:
    collect_ignore = ["evaluation"]  # its fixtures are torch models

    def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
        return Module.from_parent(parent, path=module_path)  # type: ignore[no-any-return]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
        try:
            return (yield)
        except Exception as error:
            if lacks(error) and not item.get_closest_marker("light"):
                pytest.skip(str(error))
            raise


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
