"""What exiftool reads from files, the judge that these tests share; skipped with the reason if it is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

EXIFTOOL = shutil.which("exiftool")
needs_exiftool = pytest.mark.skipif(EXIFTOOL is None, reason="there is no exiftool here")


def exiftool(file: Path, *tags: str) -> dict[str, Any]:
    """Return the tags of a file, with their groups."""
    return read_all([file], *(f"-{tag}" for tag in tags))[str(file)]


def read_all(files: list[Path], *options: str) -> dict[str, dict[str, Any]]:
    """Return the tags of many files at once."""
    assert EXIFTOOL is not None
    line = [EXIFTOOL, "-json", "-G1", *options, *map(str, files)]
    said = subprocess.run(line, capture_output=True, text=True).stdout
    held = {str(own.pop("SourceFile")): own for own in json.loads(said)}
    assert len(held) == len(files)
    return held


def write_tags(file: Path, *options: str) -> None:
    """Let exiftool write tags, as another program."""
    subprocess.run([str(EXIFTOOL), "-q", "-m", "-overwrite_original", *options, str(file)], check=True)
