"""Every method on one protocol: which entries there are, what a table says of them, and what was published."""

from __future__ import annotations

import sys

import pytest

from mltta.cli import main
from mltta.evaluation.comparison import RECONSTRUCTED
from mltta.methods import list_methods, method_class
from mltta.reproduction.frontier import (
    LOCAL,
    SEVERAL,
    Entry,
    entries,
    frontier_plot,
    frontier_table,
    measure,
    published_table,
)
from mltta.reproduction.rerun import Bench
from tests import golden_data as golden
from tests.evaluation.scene import make_dataset


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    top = tmp_path_factory.mktemp("frontier")
    place = Bench("tiny", "toy", golden.backbone("rn"), make_dataset(top / "photos", 5))
    wanted = [*entries(["clip", "bcp"]), Entry("tagclip"), Entry("zero", "local"), Entry("sparc")]
    return measure(place, wanted, top / "results", orders=2, cache=top / "features")


def test_every_method_is_there_and_some_look_at_windows_or_have_several_templates():
    names = [entry.method for entry in entries()]
    assert set(names) == set(list_methods())
    assert len(set(entries())) == len(names)
    assert {Entry(name, "local") for name in LOCAL} | {Entry(name, "", "simple") for name in SEVERAL} <= set(
        entries()
    )
    assert not any("context" in method_class(name).requires for name in SEVERAL)


def test_what_a_tower_does_not_allow_has_an_empty_row_and_its_reason(found):
    table = frontier_table(found)
    (row,) = [row for row in table.rows if row.name == "tagclip"]
    assert all(cell.ours is None for cell in row.cells)
    assert any(note.startswith("tagclip was not run") and "tagclip-local" in note for note in table.notes)


def test_a_row_holds_all_scorings_and_what_they_cost(found):
    table = frontier_table(found)
    assert table.columns[:4] == ("mAP", "mAP softmax", "mAP z-score", "F1 of sets")
    rows = {row.name: [cell.ours for cell in row.cells] for row in table.rows}
    summary = found.lines[Entry("clip")].summaries[0]
    scorings = [summary.map, summary.map_softmax, summary.map_z_score]
    views, state = map(table.columns.index, ("views", "state, MB"))
    assert rows["clip"][: views + 1] == [*scorings, 100 * summary.sets.f1, 1.0]
    assert rows["clip"][state] is None
    # the clean view, and one pass at twice its side
    assert rows["zero (local)"][views] == pytest.approx(5.0, abs=0.2)
    assert rows["bcp †"][state] > 0
    assert "over 2 orders" in table.rows[[row.name for row in table.rows].index("bcp †")].cells[0].note
    assert RECONSTRUCTED in table.notes
    scores = [cells[2] for cells in rows.values() if cells[2] is not None]
    assert scores == sorted(scores, reverse=True)


def test_the_plot_names_all_that_was_measured(found):
    plot = frontier_plot(found, "raw")
    assert plot.startswith("<svg")
    for entry in found.lines:
        assert entry.title in plot
    assert ">tagclip<" not in plot


def test_published_numbers_stand_with_their_protocols_in_words():
    table = published_table()
    rows = {(row.group, row.name.split(" [")[0]): row for row in table.rows}
    columns = list(table.columns)
    assert rows["ViT-B/16", "TagCLIP"].cells[columns.index("COCO2014")].paper == 70.9
    assert rows["ViT-B/16", "TagCLIP, own lists"].cells[columns.index("VOC2007")].paper == 92.8
    assert rows["ViT-B/16", "BCP"].cells[columns.index("Average")].paper == 71.79
    assert rows["SigLIP2 SO400M/14", "PuRF"].cells[columns.index("COCO2017")].paper == 72.81
    assert rows["ViT-B/16", "DualPrompt"].cells[columns.index("COCO2014")].paper == 67.7
    assert rows["ViT-H/14 LAION-2B", "CLIP"].cells[columns.index("VOC2007")].paper == 80.1
    speed = [row.cells[columns.index("images per second")].paper for row in table.rows]
    assert sorted(value for value in speed if value is not None) == [3.05, 5.74, 6.35, 106]
    for row in table.rows:
        number = row.name.split("[")[1].rstrip("]")
        assert sum(note.startswith(f"[{number}]") for note in table.notes) == 1
    assert any("difficult pairs of VOC count as present" in note for note in table.notes)


def test_without_data_the_command_prints_what_was_published(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mltta", "reproduce", "--frontier", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "TagCLIP, own lists" in capsys.readouterr().out
    assert (tmp_path / "frontier-published.md").is_file()
    assert "What was published" in (tmp_path / "report.html").read_text(encoding="utf-8")
