"""The paper's numbers are the printed ones, and every oddity noted is really there."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

import pytest

from mltta.errors import ConfigError
from mltta.reproduction import paper
from mltta.reproduction.paper import Setting

# Lines of the LaTeX source, without the markup around the numbers.
PRINTED = {
    (1, "RN50", "CLIP"): "47.53 47.32 75.91 74.25 41.53 57.31",
    (1, "RN50", "RLCF"): "36.87 36.73 65.75 64.73 29.83 46.78",
    (1, "RN50", "ML-TTA"): "51.58 51.39 78.62 76.63 42.53 60.15",
    (1, "RN101", "TPT"): "49.71 48.89 74.82 73.39 43.10 57.98",
    (1, "ViT-B/32", "TDA"): "51.23 51.49 77.62 77.12 44.13 60.32",
    (1, "ViT-B/16", "DART"): "54.73 54.68 79.91 78.56 45.91 62.76",
    (1, "ViT-B/16", "DMN"): "52.52 52.37 79.83 79.67 46.27 62.13",
    (1, "ViT-B/16", "DiffTPT"): "53.91 54.15 77.93 77.24 46.13 61.87",
    (1, "ViT-B/16", "ML-TTA"): "57.52 57.49 81.28 81.13 46.55 64.80",
    (2, "CoOp", "CoOp"): "56.12 56.35 79.14 77.85 46.74 63.24",
    (2, "CoOp", "ML-TTA"): "59.68 59.33 83.17 81.36 48.12 66.33",
    (2, "MaPLe", "TPT"): "63.36 63.75 85.04 83.92 48.90 69.01",
    (2, "MaPLe", "ML-TTA"): "64.75 64.86 86.40 85.69 50.21 70.38",
    (3, "", "CLIP"): "62.76 55.41 49.89 41.07",
    (3, "", "RLCF"): "66.01 51.65 43.32 35.08",
    (3, "", "ML-TTA"): "67.14 57.59 51.68 41.32",
    (4, "", "adapting time (s)"): "0.21 0.41 0.45 0.24",
    (4, "", "mAP"): "48.52 48.56 36.87 51.58",
    (5, "", "VP"): "48.51 75.52 53.32 77.57",
    (5, "", "CP+BEM"): "49.54 76.75 55.64 79.58",
    (5, "", "VP+CP"): "51.22 77.98 57.14 80.85",
    (6, "", "VP+CP+BCE"): "48.39 75.75 54.51 78.59",
    (7, "RN50", "COCO2014"): "47.53 48.52 51.35 51.37 51.41 51.49 51.58 51.59 51.55 51.48",
    (7, "RN50", "VOC2007"): "75.91 75.54 78.29 78.33 78.48 78.54 78.61 78.59 78.53 78.42",
    (7, "ViT-B/16", "COCO2014"): "54.42 53.32 57.23 57.33 57.41 57.48 57.49 57.52 57.55 57.58",
    (7, "ViT-B/16", "VOC2007"): "79.58 77.54 81.06 81.12 81.21 81.24 81.28 81.19 81.15 80.98",
}

OFF = Decimal("0.011")


def rows(number):
    """The cells of a table by (group, row)."""
    found = defaultdict(list)
    for cell in paper.load_table(number).cells:
        found[cell.group, cell.row].append(cell)
    return found


def lookup(setting, table=None):
    """The cell that measures a setting, from the first table that prints it."""
    cells = (cell for own in paper.tables() for cell in own.cells if table in (None, own.number))
    return next((cell for cell in cells if cell.setting == setting), None)


def exact(cell):
    return Decimal(f"{cell.value:.2f}")


def notes_of(kind, *, table=None):
    return [note for note in paper.notes() if note.kind == kind and table in (None, note.table)]


@pytest.mark.parametrize("place", PRINTED, ids=lambda place: " ".join(map(str, place)))
def test_rows_hold_the_printed_numbers(place):
    number, *at = place
    assert " ".join(f"{cell.value:.2f}" for cell in rows(number)[tuple(at)]) == PRINTED[place]


@pytest.mark.parametrize(
    ("number", "cells"),
    [(1, 29 * 6), (2, 12 * 6), (3, 5 * 4), (4, 2 * 4), (5, 6 * 4), (6, 3 * 4), (7, 4 * 10)],
)
def test_every_cell_of_every_table_is_there_and_measures_something_else(number, cells):
    table = paper.load_table(number)
    assert len(table.cells) == cells
    assert len({cell.setting for cell in table.cells}) == cells


def test_dart_was_run_on_one_model_and_the_others_on_four():
    models = defaultdict(set)
    for cell in paper.load_table(1).cells:
        models[cell.setting.method].add(cell.setting.model)
    assert models.pop("dart") == {"ViT-B/16"}
    assert set(models) == {"clip", "dmn", "tda", "tpt", "difftpt", "rlcf", "ml-tta"}
    assert all(found == {"RN50", "RN101", "ViT-B/32", "ViT-B/16"} for found in models.values())


def test_online_methods_are_the_ones_with_a_cross():
    online = {cell.setting.method for n in (1, 2) for cell in paper.load_table(n).cells if not cell.episodic}
    assert online == {"dmn", "tda", "dart"}


def test_a_setting_finds_its_cell():
    assert lookup(Setting.of("RN101", "tda", "voc2012")).value == 77.13
    assert lookup(Setting.of("ViT-B/16", "clip", "nuswide", init="maple")).value == 48.42
    assert lookup(Setting.of("RN50", "ml-tta", "coco2014", "seconds")).value == 0.24
    assert lookup(Setting.of("RN50", "ml-tta", "voc2007", objective="bce")).value == 75.75
    assert lookup(Setting.of("ViT-B/16", "rlcf", "coco2014", "mAP by label count: 8+")).value == 35.08
    vp = Setting.of("RN50", "ml-tta", "coco2014", bind=False, caption_prompt=False)
    assert lookup(vp).row == "VP"
    assert lookup(Setting.of("RN50", "ml-tta", "imagenet")) is None


def test_a_default_option_does_not_set_a_run_apart_and_another_value_does():
    plain = Setting.of("ViT-B/16", "ml-tta", "coco2014")
    assert Setting.of("ViT-B/16", "ml-tta", "coco2014", captions_per_view=16, bind=True, views=64) == plain
    assert lookup(plain).value == 57.52
    assert lookup(plain, table=7).value == 57.49
    assert lookup(Setting.of("ViT-B/16", "ml-tta", "coco2014", captions_per_view=32)).value == 57.52
    assert lookup(Setting.of("ViT-B/16", "ml-tta", "coco2014", lr_view=0.5)) is None
    assert Setting.of("ViT-B/16", "tpt", "coco2014", views=64) != Setting.of("ViT-B/16", "tpt", "coco2014")


def test_averages_that_are_off_are_exactly_the_ones_noted():
    off, rounded = set(), set()
    for number in (1, 2):
        for (group, row), cells in rows(number).items():
            *parts, average = map(exact, cells)
            gap = abs(sum(parts) / 5 - average)
            if gap > OFF:
                off.add((number, f"{group} / {row} / Average"))
            elif gap > Decimal("0.005"):
                rounded.add((number, f"{group} / {row} / Average"))
    assert off == {(2, "MaPLe / TPT / Average")}
    assert {(note.table, note.cell) for note in notes_of("average")} == off | rounded


def test_cells_that_disagree_between_tables_are_exactly_the_ones_noted():
    by_setting = defaultdict(list)
    for table in paper.tables():
        for cell in table.cells:
            setting = cell.setting
            if (table.number, cell.row) == (5, "VP"):  # the paper calls this row TPT
                setting = Setting.of(setting.model, "tpt", setting.dataset)
            by_setting[setting].append(cell)
    differing = {
        (cells[-1].table if cells[-1].table == 7 and cells[-1].value != cells[0].value else 5, setting)
        for setting, cells in by_setting.items()
        if len({cell.value for cell in cells}) > 1
    }
    noted = {
        (5, Setting.of("RN50", "tpt", "coco2014")),
        (5, Setting.of("RN50", "tpt", "voc2007")),
        (5, Setting.of("ViT-B/16", "tpt", "voc2007")),
        (7, Setting.of("RN50", "ml-tta", "voc2007")),
        (7, Setting.of("ViT-B/16", "ml-tta", "coco2014")),
    }
    assert differing == noted
    cells = [note.cell for note in notes_of("disagreement") if note.cell != "VP"]
    assert sorted(cells) == [
        "RN50 / VOC2007 / 16",
        "VP / RN50 COCO2014",
        "VP / RN50 VOC2007",
        "VP / ViT-B/16 VOC2007",
        "ViT-B/16 / COCO2014 / 16",
    ]


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_bold_and_underline_are_where_the_best_and_second_best_numbers_are(number):
    columns = defaultdict(list)
    for cell in paper.load_table(number).cells:
        columns[cell.group, cell.column].append(cell)
    for cells in columns.values():
        best, second, *others = sorted(cells, key=lambda cell: -cell.value)
        assert best.mark == "best"
        assert second.mark == ("second" if number <= 3 else "")
        assert {cell.mark for cell in others} <= {""}


def test_bold_marks_the_best_of_a_row_in_table_7_and_the_fastest_in_table_4():
    for cells in rows(7).values():
        assert [cell for cell in cells if cell.mark] == [max(cells, key=lambda cell: cell.value)]
    fastest, next_fastest = sorted(rows(4)["", "adapting time (s)"], key=lambda cell: cell.value)[:2]
    assert (fastest.setting.method, fastest.mark) == ("tpt", "best")
    assert (next_fastest.setting.method, next_fastest.mark) == ("ml-tta", "second")


def test_what_the_paper_does_not_print_is_said_to_be_inferred():
    assert {table.number: table.inferred for table in paper.tables() if table.inferred} == {
        2: ("model",),
        3: ("model",),
        4: ("model", "dataset"),
    }
    for number in (2, 3, 4):
        assert any(note.kind == "inferred" for note in paper.load_table(number).notes)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("spelling", "Epsdoic"),
        ("spelling", "DIffTPT"),
        ("spelling", "Abltion"),
        ("spelling", "ICML 2021"),
        ("spelling", "RCLF"),
        ("prose", "VOC2012/2017"),
        ("prose", "47.53 to 51.58"),
        ("prose", "TDA gains 1.36 to 1.79"),
        ("disagreement", "the cell of 32 captions"),
    ],
)
def test_known_slips_are_noted(kind, words):
    assert any(words in f"{note.cell} {note.what}" for note in notes_of(kind))


def gains(number, over, method, **where):
    """Differences of a method over another in one table, in the printed hundredths."""
    table = {cell.setting: exact(cell) for cell in paper.load_table(number).cells}
    pairs = []
    for setting, value in table.items():
        if setting.method == method and all(getattr(setting, k) in v for k, v in where.items()):
            other = Setting(setting.model, over, setting.dataset, setting.metric, setting.init)
            pairs.append(float(value - table[other]))
    return pairs


def test_verdicts_on_the_claims_follow_from_the_tables():
    verdict = {claim.id: claim.in_paper for claim in paper.claims()}
    resnets, coco, voc = ("RN50", "RN101"), ("coco2014", "coco2017"), ("voc2007", "voc2012")
    assert all(4 <= gain <= 5 for gain in gains(1, "clip", "ml-tta", model=resnets, dataset=coco))
    assert verdict["coco-gain-resnets"] == "holds"
    assert all(gain > 0 for gain in gains(1, "clip", "tda", model=resnets, dataset=coco))
    assert verdict["online-methods-decline"] == "contradicted"
    tpt = gains(1, "clip", "tpt", model=resnets, dataset=voc)
    assert min(tpt) == -1.90
    assert max(tpt) == -0.33
    assert verdict["tpt-loses-on-voc"] == "partly"
    assert max(gains(1, "clip", "rlcf", model=resnets)) == -4.58
    assert verdict["rlcf-collapses-on-small-models"] == "holds"
    assert max(gains(2, "clip", "ml-tta", dataset=coco)) == 3.56
    assert verdict["learned-prompts"] == "contradicted"
    assert gains(3, "clip", "ml-tta") == [4.38, 2.18, 1.79, 0.25]
    assert verdict["ahead-for-every-label-count"] == "holds"


def test_captions_beat_views_and_binding_helps_in_every_column_of_table_5():
    value = {(cell.row, cell.column): cell.value for cell in paper.load_table(5).cells}
    for column in paper.load_table(5).columns:
        assert value["CP", column] > value["VP", column]
        assert value["CP+BEM", column] > value["VP+BEM", column]
        for row in ("VP", "CP", "VP+CP"):
            assert value[f"{row}+BEM", column] > value[row, column]


def test_claims_have_distinct_names_and_say_what_measures_them():
    claims = paper.claims()
    assert len({claim.id for claim in claims}) == len(claims) == 19
    for claim in claims:
        assert all(source.startswith(("Table ", "Figure ")) for source in claim.measured_by)
        assert (claim.in_paper == "figure only") == all(s.startswith("Figure") for s in claim.measured_by)


def test_a_table_the_paper_lacks_is_refused_by_name():
    with pytest.raises(ConfigError, match="no table 8; it has tables 1 to 7"):
        paper.load_table(8)
