"""What the command line says of hostile files, and of faults of our own."""

from __future__ import annotations

import pickle
import subprocess
import sys

from mltta.evaluation.results import run_text
from tests.safety.many import ROOT, outcomes
from tests.safety.world import VIT, photo

DEEP, DIGITS = "[" * 100_000, "9" * 5000


def test_hostile_files_end_in_one_sentence_that_names_them(tmp_path):
    photo(0).save(tmp_path / "a.png")
    hostile = {
        "deep.json": DEEP,
        "digits.json": f'["dog", {DIGITS}]',
        "cell.csv": "label\n" + "x" * 200_000 + "\n",
        "deep.yaml": DEEP,
        "views.yaml": "clip: {}\nml-tta: {views: 999999999999}\n",
        "digits.yaml": f"ml-tta: {{views: {DIGITS}}}\n",
        "code.yaml": "ml-tta: !!python/object/apply:os.mkdir [marker]\n",
        "deep.jsonl": '{"caption": ' + DEEP + "\n",
        "cell.tsv": '"' + "x" * 200_000 + '"\n',
        "noise.safetensors": "noise",
        "run.json": run_text({"shape": [1, 1], "images": 1}).decode(),
    }
    for name, text in hostile.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "own.pt").write_bytes(pickle.dumps(print))
    tag = ["tag", tmp_path / "a.png", "--weights", VIT, "--quick-gelu", "--labels"]
    here = [
        "eval",
        "folder",
        "--data",
        tmp_path,
        "--weights",
        VIT,
        "--quick-gelu",
        "--method",
        "ml-tta",
        "--config",
    ]
    commands = {
        "deep.json": [*tag, tmp_path / "deep.json"],
        "digits.json": [*tag, tmp_path / "digits.json"],
        "cell.csv": [*tag, tmp_path / "cell.csv"],
        "deep.yaml": [*here, tmp_path / "deep.yaml"],
        "digits.yaml": [*here, tmp_path / "digits.yaml"],
        "code.yaml": [*here, tmp_path / "code.yaml"],
        "views": [*tag, "dog, cat", "--method", "ml-tta", "--set", "views=999999999999"],
        "deep.jsonl": [*tag, "dog, cat", "--captions", tmp_path / "deep.jsonl"],
        "cell.tsv": [*tag, "dog, cat", "--captions", tmp_path / "cell.tsv"],
        "noise.safetensors": [*tag, "dog, cat", "--prompts", tmp_path / "noise.safetensors"],
        "own.pt": ["tag", tmp_path / "a.png", "--weights", tmp_path / "own.pt", "--quick-gelu"],
        "images.jsonl": ["compare", tmp_path],
    }
    for name, (code, said) in zip(commands, outcomes(list(commands.values())), strict=True):
        assert code == 2, (name, said)
        assert "Traceback" not in said
        assert name in said, (name, said)
        assert len(said) < 2000
    assert not (tmp_path / "marker").exists()


FAULT = """
import sys, mltta.cli.lists as lists
def methods() -> None:
    raise AttributeError("a slip of ours")
import mltta.cli as cli
cli.app.registered_commands = [c for c in cli.app.registered_commands if c.name != "methods"]
cli.app.command("methods")(methods)
sys.argv = ["mltta", "methods"]
cli.main()
"""


def test_a_fault_of_ours_shows_where_and_asks_to_be_reported():
    done = subprocess.run(
        [sys.executable, "-c", FAULT], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "AttributeError: a slip of ours" in done.stderr
    assert "this is a bug in mltta. Please open an issue" in done.stderr
