"""What other systems than Linux do differently, tried here: processes that start anew, streams that are not UTF-8."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PHOTO = ROOT / "examples" / "photos" / "cat.jpg"

# No `if __name__ == "__main__"`: a process that starts anew would run it again.
UNGUARDED = """
import multiprocessing, sys
multiprocessing.set_start_method("spawn")
import mltta
print(mltta.Tagger(labels=["cat", "boat"], method="clip")(sys.argv[1])[0]["label"])
"""
GUARDED = """
import multiprocessing, sys
import mltta
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    execution = mltta.Execution(workers=1)
    tagger = mltta.Tagger(labels=["cat", "boat"], method="clip", execution=execution)
    print(tagger([sys.argv[1]])[0][0]["label"])
"""


@pytest.mark.parametrize("script", [UNGUARDED, GUARDED])
def test_photos_are_tagged_where_processes_start_anew(script, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file), str(PHOTO)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout == "cat\n", done.stderr


@pytest.mark.parametrize("format", ["table", "csv"])
def test_tags_can_be_piped_where_the_screen_is_not_utf_8(format):
    options = ["-l", "cat, кот", "--method", "clip", "-f", format, "--top-k", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "mltta", "tag", str(PHOTO), *options],
        env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "кот" in done.stdout.decode("utf-8")
    assert b"\r\r\n" not in done.stdout


def test_text_files_are_read_and_written_in_a_named_encoding():
    """Without a name it is the system's own, which on Windows is seldom UTF-8."""
    given = {"read_text": 0, "write_text": 1}  # arguments before the encoding
    unnamed = [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and len(node.args) == given.get(node.func.attr)
        and not any(word.arg == "encoding" for word in node.keywords)
    ]
    assert not unnamed
