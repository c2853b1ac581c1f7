"""The whole kit on stand-ins: all tables and figures, every cell filled, killed twice and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from mltta.cli import main
from tests.reproduction import standins

FIGURES = [*(f"1a-ViT-B-16-coco2014{end}" for end in ("", "-1", "-4")), "1b-ViT-B-16-coco2014"]
FIGURES += ["2-ViT-B-16-coco2014", "3-ViT-B-16-coco2014"]


@pytest.fixture(scope="module")
def kit(tmp_path_factory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("kit")
    return folder, standins.build(folder)


def start(folder: Path, options: list[str]) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tests.reproduction.standins", *options, "--out", str(folder / "out")]
    env = {**os.environ, "MLTTA_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def records(folder: Path) -> dict[Path, bytes]:
    """What episodic methods have measured so far, file by file; online ones resume from their saved memory."""
    files = (folder / "out").rglob("images.jsonl")
    online = ("-dmn", "-tda", "-dart")
    return {file: file.read_bytes() for file in files if not any(name in file.parent.name for name in online)}


def killed(folder: Path, options: list[str], more: int) -> dict[Path, bytes]:
    """Kill a run after it has measured so many images more; what it leaves behind."""
    before = sum(content.count(b"\n") for content in records(folder).values())
    running = start(folder, options)
    while running.poll() is None:
        if sum(content.count(b"\n") for content in records(folder).values()) >= before + more:
            running.send_signal(signal.SIGKILL)
            break
        time.sleep(0.02)
    assert running.wait() == -signal.SIGKILL, running.stderr.read()
    return records(folder)


def plan(options: list[str], monkeypatch, capsys) -> tuple[str, dict[tuple[str, str], str]]:
    """What a plan prints, and the state of each thing that is needed."""
    standins.stand_in(monkeypatch.setattr)
    monkeypatch.setattr(sys, "argv", ["mltta", "reproduce", "--plan", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr().out
    needs = [line.split() for line in said.splitlines() if line.startswith(("ok ", "differs ", "missing "))]
    return said, {(kind, name): state for state, kind, name, *_ in needs}


def test_a_plan_finds_all_that_is_there_and_runs_nothing(kit, monkeypatch, capsys):
    folder, options = kit
    said, state = plan([*options, "--table", "all", "--out", str(folder / "out")], monkeypatch, capsys)
    assert len(state) == 22
    assert "missing" not in state.values()
    assert "0 missing" in said
    assert f"mltta reproduce {' '.join(options[:4])}" in said
    assert not (folder / "out").exists()


def test_a_plan_says_what_is_missing_and_what_to_do(kit, monkeypatch, capsys):
    folder, options = kit
    given = [
        *options[:2],
        "--data",
        f"voc2007={folder / 'nowhere'}",
        "--captions",
        f"voc={folder / 'voc.txt'}",
    ]
    said, state = plan([*given, "--table", "1", "--table", "2"], monkeypatch, capsys)
    assert state["weights", "RN50"] == "ok"
    assert state["data", "voc2007"] == state["data", "nuswide"] == state["prompts", "coop"] == "missing"
    assert (
        state["captions", "voc2007"] == state["captions", "coco2014"] == state["teacher", "rlcf"] == "differs"
    )
    assert "20 in " in said
    assert "mltta variations --data voc2012=DIR -o variations" in said
    assert str(folder / "nowhere") in said


def test_all_tables_and_figures_are_filled_after_two_kills(kit):
    folder, options = kit
    options = [*options, "--table", "all", "--orders", "1"]
    first = killed(folder, options, 40)
    second = killed(folder, options, 60)
    last = start(folder, options)
    _, errors = last.communicate()
    assert last.returncode == 0, errors
    assert "not run" not in errors
    for earlier, later in ((first, second), (second, records(folder))):
        # what was measured is not measured again; half a line is what a kill may leave
        for file, content in earlier.items():
            assert later[file].startswith(content[: content.rfind(b"\n") + 1])
    for number in range(1, 8):
        table = json.loads((folder / "out" / f"table-{number}.json").read_text())
        assert [cell for row in table["rows"] for cell in row["cells"] if "ours" not in cell] == []
        assert any(note.startswith("Conditions. ") and "coco.txt" in note for note in table["notes"])
        assert (folder / "out" / f"table-{number}-ours.json").exists() is False
    rows = json.loads((folder / "out" / "table-1.json").read_text())["rows"]
    assert [row["name"] for row in rows][1:3] == ["DMN", "DMN, as released"]
    for name in FIGURES:
        assert (folder / "out" / f"figure-{name}.svg").read_text().startswith("<svg")
        assert Image.open(folder / "out" / f"figure-{name}.png").size[0] > 500
    report = (folder / "out" / "report.html").read_text()
    assert all(f"<h2>Table {number}</h2>" in report for number in range(1, 8))
    assert report.count('<figure class="plot">') >= len(FIGURES)
