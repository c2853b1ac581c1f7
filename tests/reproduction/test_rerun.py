"""The paper's tables run on other data and models: cells, places, files."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from mltta.cli import main
from mltta.cli.places import load_several, paper_model
from mltta.errors import ConfigError
from mltta.evaluation.comparison import comparison_page, example_section
from mltta.evaluation.summary import Summary
from mltta.model.learned_prompts import save_prompts
from mltta.model.maple import with_prompts
from mltta.reproduction.filled import own_table, paper_tables, settings_of, view_figure
from mltta.reproduction.paper import Setting
from mltta.reproduction.rerun import Bench, Reproduction
from tests import golden_data as golden
from tests.evaluation.scene import make_dataset
from tests.model.prompted import coop_of, maple, tiny

INITS = ("template", "coop", "maple")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Bench:
    photos = make_dataset(tmp_path_factory.mktemp("scene") / "photos", 5)
    return Bench("tiny", "toy", golden.backbone("vit"), photos)


@pytest.fixture
def done(tmp_path, monkeypatch) -> Reproduction:
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path / "cache"))
    return Reproduction(tmp_path / "results", orders=2, options={"cache": tmp_path / "features"})


def test_a_cell_holds_the_figure_of_its_result(place, done):
    clip, tpt = Setting.of("", "clip", ""), Setting.of("", "tpt", "", views=4)
    done.measure(place, [clip, tpt])
    for setting in (Setting.of("tiny", "clip", place.key), Setting.of("tiny", "tpt", place.key, views=4)):
        (summary,) = done.found[setting].summaries
        assert done.measured[setting].ours == Summary(summary.result).map
        assert done.measured[replace(setting, metric="seconds")].ours == summary.result.ms / 1000


def test_an_online_method_is_measured_in_several_orders_and_says_so(place, done):
    done.measure(place, [Setting.of("", "tda", "")])
    cell = done.measured[Setting.of("tiny", "tda", place.key)]
    values = [summary.map for summary in done.found[Setting.of("tiny", "tda", place.key)].summaries]
    assert cell.ours == pytest.approx(sum(values) / 2)
    assert "over 2 orders" in cell.note


def test_what_cannot_be_run_is_told_and_its_cell_stays_empty(place, done):
    done.measure(place, [Setting.of("", "difftpt", ""), Setting.of("", "clip", "", init="coop")])
    assert not done.measured
    assert any("generated" in why for why in done.skipped.values())
    table = own_table(3, [place], done.measured)
    assert all(cell.ours is None for row in table.rows for cell in row.cells)


def test_learned_prompts_fill_the_cells_of_their_rows_of_table_2(place, done, tmp_path):
    prompted = {"coop": with_prompts(tiny(), coop_of()), "maple": with_prompts(tiny(), maple())}
    few = tmp_path / "few.txt"
    few.write_text("".join(f"A {label} in the sun.\n" for label in place.dataset.labels))
    there = replace(place, backbone=tiny(), prompted=prompted, captions=str(few))
    wanted = [Setting.of("", "clip", "", init=init) for init in INITS]
    done.measure(there, wanted)
    found = {
        init: done.found[Setting.of("tiny", "clip", place.key, init=init)].summaries[0].result
        for init in INITS
    }
    assert [result.run["prompts"] for result in found.values()] == [
        None,
        f"CoOp {coop_of().digest}",
        f"MaPLe {maple().digest}",
    ]
    assert len({result.folder for result in found.values()}) == 3
    table = own_table(2, [there], done.measured)
    measured = [row.cells[0].ours for row in table.rows if row.cells[0].ours is not None]
    assert measured == [Summary(found[init]).map for init in ("coop", "maple")]
    assert not done.skipped


def test_prompts_of_a_kind_are_given_once_and_those_that_do_not_fit_are_told(tmp_path, monkeypatch, capsys):
    save_prompts(coop_of(), tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="CoOp prompts are given twice"):
        load_several([tmp_path / "a.safetensors"] * 2)
    photos = make_dataset(tmp_path / "photos", 2)
    rows = "".join(f"{id},dog\n" for id in photos.ids)
    (tmp_path / "photos" / "labels.csv").write_text(f"image,labels\n{rows}")
    data = ["--data", f"folder={tmp_path / 'photos'}", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(
        sys, "argv", ["mltta", "reproduce", "-t", "2", *data, "--prompts", str(tmp_path / "a.safetensors")]
    )
    with pytest.raises(SystemExit):
        main()
    assert "not run: CoOp prompts on mini" in capsys.readouterr().err


def test_our_images_never_stand_beside_the_paper_s_number_unless_they_are_the_paper_s(place):
    part = replace(place, model="RN50", dataset_name="voc2007")
    assert not part.published
    assert part.key == place.dataset.name
    whole = replace(part, dataset=replace(place.dataset, published=len(place.dataset)))
    assert whole.key == "voc2007"
    assert not replace(whole, own_split=False).published


def test_a_measured_cell_stands_in_the_paper_s_table_beside_its_number(place, done):
    whole = replace(
        place,
        model="RN50",
        dataset_name="voc2007",
        dataset=replace(place.dataset, published=len(place.dataset)),
    )
    done.measure(whole, [Setting.of("", "clip", "")])
    (table,) = paper_tables(1, [whole], done)
    row = next(row for row in table.rows if (row.group, row.name) == ("RN50", "CLIP"))
    cell = row.cells[table.columns.index("VOC2007")]
    assert cell.paper == 75.91
    assert cell.ours == done.measured[Setting.of("RN50", "clip", "voc2007")].ours


@pytest.mark.parametrize("number", [1, 3, 4, 5, 6, 7])
def test_every_row_of_a_table_has_a_place_in_ours(place, number):
    measured = {replace(s, model="tiny", dataset=place.key): i for i, s in enumerate(settings_of(number))}
    assert len(own_table(number, [place], {}).rows) >= 1
    table = own_table(number, [place], {s: replace_cell(i) for s, i in measured.items()})
    assert all(cell.ours is not None for row in table.rows for cell in row.cells)
    assert any(
        f"{len(place.dataset)} images" in text
        for text in (*table.columns, *(r.name + r.group for r in table.rows))
    )


def replace_cell(number: int):
    from mltta.tables.cells import Cell

    return Cell(ours=float(number))


def test_the_figure_of_views_and_the_pages_show_what_was_measured(place, done):
    settings = [Setting.of("", "clip", ""), Setting.of("", "tpt", "")]
    settings += [Setting.of("", "tpt", "", views=n) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    done.measure(place, settings)
    plot, table = view_figure(place, done)
    assert [row.name for row in table.rows] == ["TPT"]
    assert table.rows[0].cells[0].ours == done.measured[Setting.of("tiny", "tpt", place.key, views=1)].ours
    assert "views of an image" in plot
    lines = done.lines(place)
    page = comparison_page([lines])
    assert "AP of each label" in page
    assert "Gain over CLIP" in page
    section = example_section(lines, place.dataset, count=2)
    assert len(section.figures) == 2
    assert all("data:image/jpeg" in figure.svg for figure in section.figures)


def test_models_are_known_by_the_paper_s_names():
    assert paper_model("ViT-B-16:openai") == paper_model("ViT-B/16") == "ViT-B/16"
    assert paper_model("mini") == "mini"


def test_without_data_the_command_prints_the_paper_s_numbers_and_writes_every_format(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["mltta", "reproduce", "-t", "5", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "57.52" in capsys.readouterr().out
    assert json.loads((tmp_path / "table-5.json").read_text())["columns"][0] == "RN50 COCO2014"
    for name in ("table-5.md", "table-5.csv", "table-5.tex", "report.html"):
        assert "57.52" in (tmp_path / name).read_text()


def test_a_dataset_without_its_folder_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["mltta", "reproduce", "-t", "5", "--data", "voc2012", "--out", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "voc2012=VOCdevkit" in capsys.readouterr().err


def test_the_paper_has_seven_tables():
    with pytest.raises(ConfigError, match="no table 8"):
        settings_of(8)
