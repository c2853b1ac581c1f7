"""Our numbers land in the paper's cells."""

from __future__ import annotations

import pytest

from mltta.reproduction.filled import side_by_side
from mltta.reproduction.paper import Setting
from mltta.tables import Cell, render

DATASETS = ("coco2014", "coco2017", "voc2007", "voc2012", "nuswide")


def cell(table, row, column, group=""):
    found = next(entry for entry in table.rows if (entry.group, entry.name) == (group, row))
    return found.cells[table.columns.index(column)]


def test_a_measured_setting_stands_beside_the_papers_number():
    ours = Cell(ours=78.4, low=77.0, high=79.6)
    table = side_by_side(1, {Setting.of("RN50", "ml-tta", "voc2007"): ours})
    assert cell(table, "ML-TTA", "VOC2007", "RN50") == Cell(78.62, 78.4, 77.0, 79.6)
    assert cell(table, "ML-TTA", "VOC2012", "RN50") == Cell(76.63)
    assert cell(table, "ML-TTA", "VOC2007", "RN101") == Cell(78.72)


def test_one_run_fills_its_cell_in_every_table_that_prints_it():
    run = {Setting.of("RN50", "ml-tta", "voc2007"): Cell(ours=78.0)}
    assert cell(side_by_side(5, run), "VP+CP+BEM", "RN50 VOC2007") == Cell(78.62, 78.0)
    assert cell(side_by_side(6, run), "VP+CP+BEM", "RN50 VOC2007") == Cell(78.62, 78.0)
    assert cell(side_by_side(7, run), "VOC2007", "16", "RN50") == Cell(78.61, 78.0)


def test_switching_binding_off_fills_the_row_without_it():
    run = {Setting.of("RN50", "ml-tta", "voc2007", bind=False): Cell(ours=77.0)}
    table = side_by_side(5, run)
    assert cell(table, "VP+CP", "RN50 VOC2007") == Cell(77.98, 77.0)
    assert cell(table, "VP+CP+BEM", "RN50 VOC2007").ours is None


def test_the_average_needs_all_five_datasets():
    run = {Setting.of("RN50", "tpt", name): Cell(ours=float(i)) for i, name in enumerate(DATASETS)}
    assert cell(side_by_side(1, run), "TPT", "Average", "RN50") == Cell(57.69, 2.0)
    del run[Setting.of("RN50", "tpt", "nuswide")]
    assert cell(side_by_side(1, run), "TPT", "Average", "RN50") == Cell(57.69)


@pytest.mark.parametrize("number", range(1, 8))
def test_each_table_of_the_paper_renders_with_nothing_measured(number):
    text = render(side_by_side(number))
    assert text.startswith(f"Table {number} of the paper: ")
    assert "All numbers are the paper's." in text


def test_seconds_and_map_of_table_4_are_not_ranked_against_each_other():
    run = {
        Setting.of("RN50", "tpt", "coco2014", "seconds"): Cell(ours=0.01),
        Setting.of("RN50", "tpt", "coco2014"): Cell(ours=48.0),
    }
    assert "**48.00**" not in render(side_by_side(4, run), "markdown")


def test_doubts_about_the_papers_numbers_stand_below_the_table():
    assert any("69.01" in note for note in side_by_side(2).notes)
    assert any("ViT-B/16 is taken" in note for note in side_by_side(3).notes)
    assert not any("Epsdoic" in note for note in side_by_side(1).notes)
