"""The notebooks run from top to bottom, and what they keep is what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def printed(notebook):
    """What the cells printed, with figures cut to one place: other machines round otherwise."""
    texts = [
        "".join(output.get("text", "") for output in cell.outputs if output.get("name") != "stderr")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    return [re.sub(r"(\d+\.\d)\d*", r"\1", text) for text in texts]


def test_there_are_three_and_they_are_small():
    assert len(NOTEBOOKS) == 3
    for name in NOTEBOOKS:
        assert (FOLDER / name).stat().st_size < 200_000


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_their_outputs_are_kept(name):
    kept = nbformat.read(FOLDER / name, as_version=4)
    ran = [cell.execution_count for cell in kept.cells if cell.cell_type == "code"]
    assert ran == list(range(1, len(ran) + 1)), "run from the top and saved"
    assert "".join(printed(kept))


@pytest.mark.soak
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_run_and_print_what_they_keep(name):
    kept = nbformat.read(FOLDER / name, as_version=4)
    again = nbformat.read(FOLDER / name, as_version=4)
    nbclient.NotebookClient(again, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert printed(again) == printed(kept)
