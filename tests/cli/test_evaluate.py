"""`mltta eval`, `compare` and `cache`, run as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
import torch

from mltta.evaluation.results import find_results
from tests.cli.test_cli import MODEL, mltta
from tests.data.test_voc import build
from tests.test_tagger import photo

CAPTIONS = [f"A {a} beside a {b}." for a in ("dog", "cat", "sofa") for b in ("person", "bicycle")] + ["Snow."]
LABELS = ["dog|sofa", "cat", "dog|person"]
TINY = [*MODEL, "--workers", 0, "--draws", 20]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Every test has a cache of its own, and one thread for the tiny model."""
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path / "cache"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_folder(folder: Path, first: int = 0) -> Path:
    """Three photos with their labels, and captions to go with them."""
    folder.mkdir()
    for i in range(3):
        photo(first + i, (60, 45)).save(folder / f"{i}.png")
    rows = "".join(f"{i}.png,{labels}\n" for i, labels in enumerate(LABELS))
    (folder / "labels.csv").write_text(f"image,labels\n{rows}")
    (folder / "captions.txt").write_text("\n".join(CAPTIONS))
    return folder


@pytest.fixture
def photos(tmp_path) -> Path:
    return make_folder(tmp_path / "photos")


def evaluate(photos: Path, *args, check: int = 0):
    """`mltta eval folder` with the tiny model."""
    given = ["--data", photos, "--captions", photos / "captions.txt", "--out", photos.parent / "results"]
    return mltta("eval", "folder", *given, *TINY, *args, check=check)


def methods(*names: str) -> list[str]:
    return [word for name in names for word in ("--method", name)]


def runs(photos: Path) -> dict[str, dict]:
    """What the results say was run, by method."""
    found = find_results([photos.parent / "results"])
    return {result.run["method"]: result.run for result in found}


def strict(text: str):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_embedded_model_measures_a_folder_end_to_end(photos):
    args = ["--data", photos, "--out", photos.parent / "results", "--set", "views=4", "--device", "cpu"]
    done = mltta("eval", "folder", *args, "--draws", 20, "--workers", 0)
    assert "folder-photos: 3 images, 4 labels" in done.stderr
    assert "3 images encoded" in done.stderr
    assert re.search(r"^clip +\d+\.\d\d", done.stdout, re.M)
    assert re.search(r"^ml-tta \(views=4\) +\d+\.\d\d", done.stdout, re.M)
    for result in find_results([photos.parent / "results"]):
        assert result.run["model"] == "mini"
        said = strict((result.folder / "summary.json").read_text(encoding="utf-8"))
        assert f"{said['mAP']:.2f}" in done.stdout
        assert said["images"] == 3
    again = mltta("eval", "folder", *args, "--draws", 20)
    assert "0 images encoded" in again.stderr
    assert "clip: 3 images were already done" in again.stderr
    assert again.stdout == done.stdout
    assert mltta("compare", photos.parent / "results", "--draws", 20).stdout == done.stdout


def test_without_a_method_it_says_which_run_before_anything_else(photos):
    said = evaluate(photos, "--set", "views=2").stderr
    assert said.lstrip().startswith("no --method given: running clip and ml-tta\n")
    assert set(runs(photos)) == {"clip", "ml-tta"}
    assert "no --method given" not in evaluate(photos, *methods("clip")).stderr


def test_captions_none_means_no_captions_and_is_refused_by_methods_that_need_some(photos, monkeypatch):
    monkeypatch.chdir(photos)  # where no file is called none
    evaluate(photos, *methods("clip"), "--captions", "none")
    assert runs(photos)["clip"]["captions"] == "none"
    refused = evaluate(photos, *methods("ml-tta"), "--captions", "none", check=2).stderr
    assert "ml-tta needs captions" in refused


def test_a_config_file_names_the_methods_and_what_is_measured(photos, tmp_path):
    (tmp_path / "run.yaml").write_text(
        f"method: [clip, tpt]\nfirst: 2\nout: {photos.parent / 'results'}\ntpt: {{views: 4}}\n"
    )
    given = ["--data", photos, "--captions", photos / "captions.txt", "--config", tmp_path / "run.yaml"]
    mltta("eval", "folder", *given, *TINY)
    assert {name: (run["images"], run["settings"]) for name, run in runs(photos).items()} == {
        "clip": (2, {}),
        "tpt": (2, {"views": 4}),
    }


def test_a_setting_reaches_every_method_that_has_it(photos):
    evaluate(photos, *methods("clip", "tpt", "ml-tta"), "--set", "views=4")
    assert {name: run["settings"] for name, run in runs(photos).items()} == {
        "clip": {},
        "tpt": {"views": 4},
        "ml-tta": {"views": 4},
    }


def test_a_setting_with_a_method_in_front_reaches_that_one(photos):
    args = ["--set", "views=6", "--set", "ml-tta.views=4", "--set", "tpt.select-ratio=.5"]
    evaluate(photos, *methods("tpt", "ml-tta"), *args)
    assert {name: run["settings"] for name, run in runs(photos).items()} == {
        "tpt": {"views": 6, "select_ratio": 0.5},
        "ml-tta": {"views": 4},
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("wings=2", "--set wings=2: none of clip, tpt has this setting; see `mltta methods`"),
        ("tpt.wings=2", "--set wings=2: expected NAME=VALUE; settings of tpt: views, "),
        ("ml-tta.views=2", "none of clip, tpt has this setting"),
        ("views", "expected NAME=VALUE"),
        ("views=many", "--set views=many: expected an integer"),
        ("augmix=perhaps", "expected true or false"),
        ("views=0", "views = 0 is out of range: give at least 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_told_and_nothing_is_run(photos, given, said):
    done = evaluate(photos, *methods("clip", "tpt"), "--set", given, check=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (photos.parent / "results").exists()


def test_a_config_file_sets_what_the_command_line_then_overrides(photos, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("ml-tta: {views: 8, lr_view: 5e-3, select-ratio: 0.5}\ntpt:\n  views: 6\nclip:\n")
    evaluate(photos, *methods("clip", "tpt", "ml-tta"), "--config", config, "--set", "tpt.views=4")
    assert {name: run["settings"] for name, run in runs(photos).items()} == {
        "clip": {},
        "tpt": {"views": 4},
        "ml-tta": {"views": 8, "lr_view": 0.005, "select_ratio": 0.5},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tda: {views: 4}", "has settings for tda, but the command runs clip, tpt"),
        ("nothing: {}", "has settings for nothing, but the command runs clip, tpt"),
        (
            "views: 4",
            "no option 'views'; put method settings under the method's name, such as `ml-tta: {views: 16}`",
        ),
        ("- clip", "expected options by name and settings by method"),
        ("tpt: {views: [", "cannot be read as YAML"),
        ("tpt: {wings: 2}", "unknown option 'wings'; this method has"),
        ("tpt: {views: many}", "views = 'many': give a whole number"),
        ("tpt: {1: 2}", "unknown option '1'"),
    ],
)
def test_a_config_file_that_makes_no_sense_is_told_in_a_sentence(photos, tmp_path, text, said):
    config = tmp_path / "settings.yaml"
    config.write_text(text)
    done = evaluate(photos, *methods("clip", "tpt"), "--config", config, check=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    missing = evaluate(photos, "--config", tmp_path / "nowhere.yaml", check=2)
    assert "no such config file" in missing.stderr


def test_only_the_first_images_are_measured(photos):
    done = evaluate(photos, *methods("clip"), "--first", 2)
    assert "evaluating only the first 2 images" in done.stderr
    assert runs(photos)["clip"]["images"] == 2
    evaluate(photos, *methods("clip"))
    assert len(find_results([photos.parent / "results"])) == 2, "the whole is another result"


@pytest.mark.parametrize("bad", ["0.png", "0.png 2.png"])
def test_images_that_cannot_be_read_are_named_and_the_exit_code_is_1(photos, bad):
    for name in bad.split():
        (photos / name).write_text("not a picture")
    done = evaluate(photos, *methods("clip", "tpt"), "--set", "views=2", check=1)
    assert f"{len(bad.split())} of 3 images could not be read:" in done.stderr
    for name in bad.split():
        assert re.search(rf"^  {re.escape(name)}: .*not a readable JPEG", done.stderr, re.M)
    assert f"{len(bad.split())} images could not be read." in done.stdout
    assert re.search(r"^clip +\d", done.stdout, re.M), "the others are measured"


def test_when_no_image_can_be_read_they_are_named_and_nothing_else_is_said(photos):
    for i in range(3):
        (photos / f"{i}.png").write_text("not a picture")
    done = evaluate(photos, *methods("clip"), check=1)
    assert "3 of 3 images could not be read:" in done.stderr
    assert "0.png: " in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--method", "magic"], "unknown method 'magic'"),
        (["--method", "rlcf"], "rlcf needs a teacher"),
        (["--preset", "mine"], "unknown preset 'mine'"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence_with_exit_code_2(photos, args, said):
    done = evaluate(photos, *args, check=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_every_format_shows_the_same_numbers(photos):
    args = [*methods("clip", "tpt"), "--set", "views=2"]
    table = strict(evaluate(photos, *args, "--format", "json").stdout)
    want = {row["name"]: row["cells"][0]["ours"] for row in table["rows"]}
    assert list(want) == ["clip", "tpt (views=2)"]
    rows = list(csv.DictReader(io.StringIO(evaluate(photos, *args, "--format", "csv").stdout)))
    for name, value in want.items():
        (cell,) = [row for row in rows if row["row"] == name and row["column"] == "mAP"]
        assert float(cell["ours"]) == pytest.approx(value)
    markdown = evaluate(photos, *args, "--format", "markdown").stdout
    latex = evaluate(photos, *args, "--format", "latex").stdout
    for value in want.values():
        assert f"{value:.2f}" in markdown
        assert f"{value:.2f}" in latex
    assert re.search(r"^\| clip \| \**\d", markdown, re.M)
    assert r"\begin{tabular}" in latex


def test_several_orders_of_an_online_method_are_one_line(photos):
    done = evaluate(photos, *methods("clip", "tda"), "--orders", 3)
    assert "over 3 orders" in done.stdout
    orders = [result.run["order"] for result in find_results([photos.parent / "results"])]
    assert sorted(orders, key=str) == [0, 1, 2, None]


def test_fresh_forgets_and_no_cache_keeps_nothing(photos, tmp_path):
    evaluate(photos, *methods("clip"), "--no-cache")
    assert not (tmp_path / "cache" / "features").exists()
    again = evaluate(photos, *methods("clip"), "--no-cache")
    assert "clip: 3 images were already done" in again.stderr
    fresh = evaluate(photos, *methods("clip"), "--no-cache", "--fresh")
    assert "already done" not in fresh.stderr
    assert "3 images encoded" in fresh.stderr


def test_compare_prints_a_table_for_each_dataset(photos, tmp_path):
    others = make_folder(tmp_path / "others", first=10)
    evaluate(photos, *methods("clip", "tpt"), "--set", "views=2")
    evaluate(others, *methods("clip"))
    done = mltta("compare", tmp_path / "results", "--draws", 20)
    assert len(re.findall(r"^clip +\d", done.stdout, re.M)) == 2
    assert len(re.findall(r"^tpt \(views=2\) +\d", done.stdout, re.M)) == 1
    assert "folder-photos, 3 images" in done.stdout
    assert "folder-others, 3 images" in done.stdout


def test_compare_of_what_is_no_result_is_told_in_a_sentence(photos):
    done = mltta("compare", photos, check=2)
    assert re.search(
        r"^error: no result in .*photos: give a folder written by `mltta eval`$", done.stderr, re.M
    )
    (photos / "run.json").write_text("{}")
    done = mltta("compare", photos, check=2)
    assert "is not a result of `mltta eval`" in done.stderr
    assert "Traceback" not in done.stderr


def test_kept_features_are_listed_and_cleared_by_name_or_all(photos):
    assert "0 feature sets, 0 bytes, in" in mltta("cache", "list").stdout
    evaluate(photos, *methods("tpt"), "--set", "views=2")
    evaluate(photos, *methods("tpt"), "--set", "views=3", "--seed", 1)
    evaluate(photos, *methods("tpt"), "--set", "views=3", "--set", "augmix=true")
    listed = mltta("cache", "list").stdout
    assert "3 feature sets" in listed
    rows = [re.split(r" *│ *", line)[1:-1] for line in listed.splitlines() if "float32" in line]
    assert sorted((row[2:7]) for row in rows) == [
        ["2", "no", "0", "float32", "3"],
        ["3", "no", "1", "float32", "3"],
        ["3", "yes", "0", "float32", "3"],
    ]
    name = rows[0][0]
    assert "removed 1 feature set" in mltta("cache", "clear", name).stdout
    left = mltta("cache", "list").stdout
    assert name not in left
    assert "2 feature sets" in left
    assert f"no cached features named {name}" in mltta("cache", "clear", name, check=2).stderr
    assert "removed 2 feature sets" in mltta("cache", "clear", "--all").stdout
    assert "0 feature sets" in mltta("cache", "list").stdout


def test_clearing_without_saying_what_is_refused(photos):
    evaluate(photos, *methods("clip"))
    done = mltta("cache", "clear", check=2)
    assert "give the names to remove (see `mltta cache list`), or --all" in done.stderr
    assert "1 feature set" in mltta("cache", "list").stdout


def test_the_released_preset_prompts_and_reads_captions_with_the_released_names_and_words(tmp_path):
    build(tmp_path / "data")
    given = ["eval", "voc2012", "--data", tmp_path / "data", *TINY, *methods("clip"), "--out"]
    for name, args in {
        "paper": (),
        "released": ("--preset", "released"),
        "names": ("--label-names", "released"),
        "words": ("--preset", "released", "--noun-words", "full"),
    }.items():
        mltta(*given, tmp_path / name, *args)
    said = {run.parts[-4]: json.loads(run.read_text()) for run in tmp_path.glob("*/*/*/run.json")}
    prompts = {name: run["prompted_as"][10] for name, run in said.items()}
    released, full = "diningtable", "dining table"
    assert prompts == {"paper": full, "released": released, "names": released, "words": released}
    words = {name: len(run["synonyms"][14].split(" | ")) for name, run in said.items()}
    assert words == {"paper": 220, "released": 5, "names": 220, "words": 220}
