"""What is said in several places is said alike, and the examples in docstrings are true."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import mltta
from mltta.methods import method_class

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: those that need a CUDA device's compiler to be imported
APART = {"mltta.__main__", "mltta.accelerate.kernels"}
MODULES = [
    module.name for module in pkgutil.walk_packages(mltta.__path__, "mltta.") if module.name not in APART
]


def test_the_version_is_said_once_in_the_package():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?\w+)?", mltta.__version__)
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mltta.__version__"}


@pytest.mark.parametrize("name", mltta.list_methods())
def test_a_method_is_one_small_file(name):
    """CONTRIBUTING and the guide promise it."""
    file = Path(sys.modules[method_class(name).__module__].__file__ or "")
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 180


def test_the_citation_is_of_this_project_and_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["title"] == PROJECT["project"]["name"]
    assert cited["license"] == PROJECT["project"]["license"]
    assert str(cited["version"]) == mltta.__version__
    assert cited["preferred-citation"]["url"] == "https://openreview.net/forum?id=75PhjtbBdr"


def test_the_address_of_the_repository_is_in_one_place():
    """Until there is one it is a placeholder under a name that can never exist; then it is changed there alone."""
    (address,) = PROJECT["project"]["urls"].values()
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in listed.stdout.split("\0") if name] or [
        *ROOT.glob("*.*"),
        *ROOT.glob("docs/*"),
    ]
    named = [
        file.relative_to(ROOT).as_posix()
        for file in files
        if file.is_file() and address.removeprefix("https://").encode() in file.read_bytes()
    ]
    assert named == ["pyproject.toml"]


def test_every_name_of_the_front_door_is_there():
    for name in mltta.__all__:
        assert getattr(mltta, name) is not None
    assert sorted(mltta._HOME_OF) == sorted(set(mltta.__all__) - {"__version__"})
    tree = ast.parse(Path(mltta.__file__).read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    assert {
        name.asname: node.module
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    } == mltta._HOME_OF, "type checkers see the same names"


def test_hosted_tests_run_every_python_that_is_promised():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    promised = [
        kind.rsplit(" ", 1)[1] for kind in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", kind)
    ]
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == promised


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.md")]
    named = {
        name
        for page in pages
        for name in re.findall(r"(?:`|^    )make (\w+)", page.read_text(encoding="utf-8"), re.M)
    }
    assert {"docs", "release", "test"} <= named <= targets


@pytest.mark.parametrize("name", ["mltta", *MODULES])
def test_the_examples_in_docstrings_are_true(name):
    module = importlib.import_module(name)
    found = doctest.testmod(module, extraglobs={"torch": torch, "np": np})
    assert not found.failed


def test_there_are_examples_in_docstrings():
    finder = doctest.DocTestFinder(exclude_empty=True)
    there = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(there) >= 8
