"""The package stays small: lines, files, top-level entries, and the files that one command enters."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.structure import PACKAGE, line_counts, top_level

ROOT = Path(__file__).parents[1]
#: files of different packages that are named alike because they mean the same thing
ALIKE = {"__init__.py", "augmix.py", "search.py", "views.py", "prompts.py", "cache.py"}


def test_the_package_has_at_most_28_500_lines_in_files_of_at_most_300():
    lines = line_counts()
    assert sum(lines.values()) <= 28_500
    assert {name: count for name, count in lines.items() if count > 300} == {}


def test_the_package_has_at_most_26_top_level_entries():
    assert len(top_level()) <= 26, top_level()


def test_a_file_name_means_one_thing():
    names = Counter(path.name for path in PACKAGE.rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} <= ALIKE


def test_tagging_a_photo_enters_at_most_56_files():
    line = [sys.executable, "-m", "tests.structure", "examples/photos/bee.jpg"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    files = [name.strip() for name in done.stdout.partition("enters")[2].splitlines()[1:]]
    assert "tagger/tagger.py" in files, done.stderr
    assert len(files) <= 56, files
