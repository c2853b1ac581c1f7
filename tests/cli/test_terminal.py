"""Nothing that a file contains or is called controls the terminal or the spreadsheet that shows it."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mltta.output.formats import text_format
from mltta.serve.answers import export
from mltta.storage.reading import Escaped, escaped
from mltta.tables.cells import Cell, Row, Table
from mltta.tables.render import render

ROOT = Path(__file__).parents[2]
EVIL = "\x1b]0;owned\x07\x9b31m\u202egpj.exe"
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "=cmd|' /C calc'!A0"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals and no such names")
def test_no_file_name_controls_the_terminal(tmp_path):
    import pty

    for number, suffix in enumerate((".jpg", ".png")):
        broken = tmp_path / f"{EVIL}{number}{suffix}"
        broken.write_bytes((ROOT / "examples/photos/cat.jpg").read_bytes() if number else b"no image")
    for format in ("table", "csv", "json"):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "mltta", "tag", str(tmp_path), "--labels", "cat, dog", "-f", format]
        running = subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=ROOT)
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the end, on Linux
                break
            if not piece:
                break
            shown += piece
        os.close(ours)
        assert running.wait() == 1  # one of them is not an image
        text = shown.decode()
        assert "owned" in text
        assert not {"\x1b]", "\x07", "\x9b", "\u202e"} & {
            text[i : i + n] for i in range(len(text)) for n in (1, 2)
        }


def test_a_stream_shows_control_characters_and_keeps_lines_and_columns():
    held = io.StringIO()
    print("a\tb\n" + EVIL, file=Escaped(held))
    assert held.getvalue() == "a\tb\n\\x1b]0;owned\\x07\\x9b31m\\u202egpj.exe\n"
    assert escaped("é犬🐶\udcff") == "é犬🐶\\udcff"


@pytest.mark.parametrize("cell", FORMULAS)
@pytest.mark.parametrize("wide", [False, True])
def test_no_cell_is_a_formula_unless_asked_for(cell, wide):
    items = [{"label": cell, "score": 0.5}]
    records = [
        {"image": cell, "present": [cell], "labels": items},
        {"image": "a", "error": f"{cell}: not an image"},
    ]

    def cells(format: str) -> list[str]:
        lines = text_format(format, wide)
        assert lines is not None
        rows = csv.reader(io.StringIO("".join(lines.pieces(records)), newline=""))
        return [one for row in rows for one in row]

    assert [one for one in cells("csv") if one.startswith(tuple("=+-@\t\r＝"))] == []
    assert f"'{cell}" in cells("csv")
    assert cell in cells("csv-raw")
    assert "0.500000" in cells("csv")


def test_exports_and_tables_have_no_formulas_either():
    entry = {"image": "=1+1", "present": ["=2"], "labels": [{"label": "=2", "score": 0.5}]}
    content, _, _ = export("csv", False, [entry])
    assert b"'=1+1,'=2,0.500000" in content
    table = Table("t", ("=c",), [Row("@r", (Cell(ours=-1.5, note="+n"),))])
    assert render(table, "csv").splitlines()[1] == ",'@r,'=c,,-1.5,,,,'+n"
