"""The paper's tables run on other data and models: cells, places, files."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mltta.captions.store import CaptionBase
from mltta.cli import main
from mltta.cli.places import given_for, load_several, paper_model
from mltta.errors import ConfigError
from mltta.evaluation.comparison import comparison_page, example_section
from mltta.evaluation.summary import Summary
from mltta.model.learned_prompts import save_prompts
from mltta.model.maple import with_prompts
from mltta.reproduction.conditions import condition_notes
from mltta.reproduction.filled import own_table, paper_tables, settings_at, settings_of, view_figure
from mltta.reproduction.label_change import changes
from mltta.reproduction.paper import Setting
from mltta.reproduction.rerun import Bench, Reproduction
from mltta.storage.folders import cache_folder
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
    counted, timed = (replace(clip, metric=name) for name in ("mAP by label count: 1-2", "seconds"))
    done.measure(place, [clip, tpt, counted, timed])
    for setting in (Setting.of("tiny", "clip", place.key), Setting.of("tiny", "tpt", place.key, views=4)):
        (summary,) = done.found[setting].summaries
        assert done.measured[setting].ours == Summary(summary.result).map
    (summary,) = done.found[place.at(clip)].summaries
    cell = done.measured[place.at(counted)]
    assert cell.ours == summary.by_count["1-2"].mean_ap
    assert cell.low <= cell.ours <= cell.high
    beyond = done.measured[place.at(timed, "seconds beyond encoding")].ours
    assert 0 < beyond < done.measured[place.at(timed)].ours


def test_presets_and_settings_reach_the_methods_and_are_told(place, done):
    done.preset, done.changed = "released", {"tpt": {"views": 4}}
    done.measure(place, [Setting.of("", name, "") for name in ("tpt", "dmn")])
    runs = {name: done.found[Setting.of("tiny", name, place.key)].run["config"] for name in ("tpt", "dmn")}
    assert (runs["tpt"]["views"], runs["tpt"]["augmix"]) == (4, True)
    assert runs["dmn"]["score"] == "probs"
    told = condition_notes(done, list(done.found))
    assert "preset: released." in told[0]
    assert "settings: views=4 (tpt)" in told[0]
    assert "settings: views=4 (tpt)" in told[1]


def test_dmn_as_released_stands_beside_ours_and_both_say_how_they_were_run(place, done):
    done.measure(place, [s for s in settings_of(1) if s.method == "dmn"])
    (table,) = paper_tables(1, [place], done)[1:]
    rows = {row.name: row.cells[0].ours for row in table.rows}
    assert rows["DMN"] is not None
    assert rows["DMN, as released"] is not None
    runs = {dict(s.options).get("preset"): line.run["config"]["score"] for s, line in done.found.items()}
    assert runs == {None: "logits", "released": "probs"}
    assert any("adds logits; the released code adds probabilities" in note for note in table.notes)


def test_captions_of_another_model_are_embedded_once_and_their_number_is_told(place, done, tmp_path):
    texts = [f"A {label} and a {other}." for label, other in pairwise(place.dataset.labels)]
    CaptionBase.build(texts, tiny()).save(tmp_path / "base")
    there = replace(place, captions=str(tmp_path / "base"))
    done.measure(there, [Setting.of("", "ml-tta", "", views=4)])
    (told, differs) = condition_notes(done, list(done.found))
    assert f"captions: {len(texts)} (base)." in told
    assert f"captions: {len(texts)} (base); the paper has 100,000 for each label set" in differs
    (kept,) = (cache_folder() / "captions").iterdir()
    assert CaptionBase.load(kept, place.backbone).texts == texts


def test_the_paper_s_models_and_images_run_only_its_own_cells_under_all(place):
    data = replace(place.dataset, published=len(place.dataset))
    whole = replace(place, model="RN50", dataset_name="voc2007", dataset=data)
    assert {s.method for s in settings_at(whole, 4, every=False)} == set()
    assert {s.method for s in settings_at(whole, 4)} == {"tpt", "difftpt", "rlcf", "ml-tta"}
    assert len(settings_at(whole, 7, every=False)) == 10
    assert len(settings_at(place, 3, every=False)) == len(settings_of(3))


def test_the_change_of_logits_is_the_one_computed_image_by_image(place, done):
    done.measure(place, [Setting.of("", name, "") for name in ("clip", "tpt")])
    clip, tpt = done.lines(place)
    truth = clip.summaries[0].targets == 1
    best, others, absent, rises = [], [], [], []
    for row in (truth.sum(axis=1) >= 2).nonzero()[0]:
        start, end = (line.summaries[0].result.branches()[row].mean(axis=0) for line in (clip, tpt))
        top = max(truth[row].nonzero()[0], key=lambda label, start=start: start[label])
        change = end - start
        best.append(change[top])
        others += [change[label] for label in truth[row].nonzero()[0] if label != top]
        absent += list(change[~truth[row]])
        rises.append((change[truth[row]] > 0).all())
    wanted = [np.mean(best), np.mean(others), np.mean(absent), 100 * np.mean(rises)]
    assert changes(clip, tpt) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("given", "names", "found"),
    [
        (["a.txt"], ["voc2007", "voc"], "a.txt"),
        (["a.txt", "voc=b"], ["voc2007", "voc"], "b"),
        (["coco=c"], ["voc2007", "voc"], None),
        (["voc=b", "voc2007=d"], ["voc2007", "voc"], "d"),
    ],
)
def test_a_value_for_one_name_goes_before_the_value_for_all(given, names, found):
    assert given_for("captions", given, names, ["voc", "coco", "voc2007"]) == found


def test_a_value_for_an_unknown_name_is_refused():
    with pytest.raises(ConfigError, match="--captions cooc=c: unknown name 'cooc'"):
        given_for("captions", ["cooc=c"], ["coco"], ["coco"])


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


def test_our_table_2_has_the_headings_of_its_prompts_and_our_table_3_no_dataset_of_the_paper(place):
    assert dict.fromkeys(row.group for row in own_table(2, [place], {}).rows) == {"CoOp": None, "MaPLe": None}
    assert "COCO2014" not in own_table(3, [place], {}).title
