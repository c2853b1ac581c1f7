"""The whole way once, tiny: prepare, train two runs, measure what was kept out, evaluate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mltta.labels import LabelSet
from tests.training.clones import clone, picture, saved, source
from tests.training.standins import write_classifier, write_data, write_minilm, write_tower, write_voc
from training import (
    certainty,
    evaluate,
    gather,
    holdout,
    labeled,
    model,
    pack,
    pieces,
    prepare,
    tokenizer,
    train,
)
from training.images import squashed
from training.judge import Judge, in_windows
from training.ship import FILES
from training.soup import mixed

VIEWS = ("--views", "56", "84x2x1", "112x2x1")
TINY = (
    "text_width=32,text_layers=1,text_steps=3,text_batch=32,steps=3,side=56,batch=12,sizes=112,large=1,relabel=0.5,blocks=2,"
    "layouts=1x2/2x2,longest_list=12"
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Many small operations: threads would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    work = tmp_path_factory.mktemp("training")
    write_data(work / "data")
    write_classifier(work / "efficientnet-lite2-random.pth")
    write_tower(work / "tower.onnx")
    write_minilm(work / "minilm")
    write_labeled(work)
    prepare.main(
        ["--data", str(work / "data"), "--out", str(work), "--classifier", str(work / "efficientnet-lite2-random.pth"),
         "--tower", str(work / "tower.onnx"),
         "--minilm", str(work / "minilm"), "--merges", "300", "--lists", "50", "--limit-texts", "300", "--least", "0",
         "--piece", "5"]
    )  # fmt: skip
    train.main(
        ["--pieces", str(work / "pieces"), "--out", str(work / "runs"), "--set", TINY, "--keep", "6", "4",
         "--store", "64", "--judge-size", "64", "--labeled", str(work / "labeled"), *VIEWS,
         "--device", "cpu", "--minutes", "5", "--run", "a", "--run", "b:seed=1", "--soup"]
    )  # fmt: skip
    return work


def write_labeled(work: Path) -> None:
    """Shards of twenty labeled photos, of which some are held out."""
    files = {
        f"{kind}/{i}.jpg": saved(picture(100 * n + i))
        for n, kind in enumerate(("cat", "horse"))
        for i in range(10)
    }
    commit = clone(work / "clones", "a/pets", files)
    manifest = [
        source("a/pets", {"cat": "cat|animal", "horse": "horse|animal"}, commit=commit, absent="classes")
    ]
    (work / "aside").mkdir()
    (work / "aside/other.jpg").write_bytes(saved(picture(999)))
    gather.gather(manifest, work / "clones", [work / "aside"], work / "labeled", share=0.2)


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_pieces_are_small_and_join_to_the_pack(work: Path) -> None:
    parts = sorted((work / "pieces").glob("pack.*"))
    assert len(parts) > 1
    assert max(p.stat().st_size for p in parts) <= 5 * 2**20
    joined = pieces.join(work / "pieces", work / "joined")
    assert (joined / pack.FLICKR).read_bytes() == (work / "pack" / pack.FLICKR).read_bytes()
    assert len(pack.read_index(joined)["flickr"]) == 24


def test_every_run_logs_all_losses_and_what_it_measures_on_images_kept_out(work: Path) -> None:
    for name in ("a", "b"):
        lines = log_of(work / "runs" / name)
        steps = [line for line in lines if line.get("phase") == "joint"]
        losses = {
            "contrastive",
            "distil",
            "text",
            "noun",
            "rank",
            "sentence",
            "local",
            "placed",
            "somewhere",
            "answer",
        }
        assert losses <= steps[-1].keys()
        assert steps[-1]["step"] == 2
        last = lines[-1]
        assert last["phase"] == "held out"
        assert {
            "recall@1",
            "noun mAP softmax",
            "nouns mAP one",
            "nouns mAP auto",
            "mosaics mAP auto",
        } <= last.keys()


def test_a_run_learns_from_labeled_photos_and_relabels_them_once(work: Path) -> None:
    lines = log_of(work / "runs/a")
    assert lines[0]["images"] > 24 + 10, "labeled photos too"
    assert sum("added labels per image" in line for line in lines) == 1


def test_photos_of_some_labels_are_left_out_if_asked(work: Path) -> None:
    every, some = (labeled.read(work / "labeled", False, without) for without in ((), ("horse",)))
    assert {f["terms"][0] for f in every.facts} == {"cat", "horse"}
    assert {f["terms"][0] for f in some.facts} == {"cat"}


def test_the_second_run_takes_the_text_phase_of_the_first(work: Path) -> None:
    assert not any("taken" in line for line in log_of(work / "runs/a"))
    assert any("taken" in line for line in log_of(work / "runs/b"))


def test_weights_are_half_precision_and_come_whole_and_in_parts(work: Path) -> None:
    run = work / "runs/a"
    whole = model.read(run)[0].state_dict()
    parts = model.read(run / "parts")[0].state_dict()
    assert all(torch.equal(whole[k], parts[k]) for k in whole)
    assert max(f.stat().st_size for f in (run / "parts").iterdir()) <= 15 * 2**20
    assert (run / model.WEIGHTS).stat().st_size < 2.2 * sum(v.numel() for v in whole.values())


def test_a_soup_is_the_mean_of_its_runs(work: Path) -> None:
    a, b, soup = (model.read(work / "runs" / n)[0].state_dict() for n in ("a", "b", "soup"))
    name = "visual.proj"
    assert not torch.equal(a[name], b[name])
    assert torch.allclose(soup[name], (a[name] + b[name]) / 2, atol=1e-3)  # half precision


def test_a_run_is_averaged_with_a_model_that_ships(work: Path, tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shutil.copytree(work / "runs/a", shipped)
    tokenizer.write(shipped, FILES)  # which names the tokenizer in the settings
    mixed([work / "runs/a", shipped], tmp_path / "mean")
    a, mean = (model.read(folder)[0].state_dict() for folder in (work / "runs/a", tmp_path / "mean"))
    assert all(torch.equal(a[k], mean[k]) for k in a)


def test_what_is_saved_is_measured_again_to_the_same_figures(work: Path) -> None:
    out = work / "held_out.json"
    holdout.main(
        ["--model", str(work / "runs/a/parts"), "--pieces", str(work / "pieces"), "--keep", "6", "4", "--store", "64",
         *VIEWS, "--device", "cpu", "--out", str(out)]
    )  # fmt: skip
    again, logged = json.loads(out.read_text()), log_of(work / "runs/a")[-1]
    assert again == pytest.approx({k: logged[k] for k in again})


def test_evaluation_prints_one_vector_and_local_views(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = LabelSet.load("voc").names
    write_voc(work, tuple(names))
    (work / "texts.txt").write_text("A dog on a sofa.\nA bird.\n")
    out = work / "figures.json"
    evaluate.main(
        ["--model", str(work / "runs/a"), "--voc", str(work), "--captions", str(work / "texts.txt"), "--draws", "5",
         *VIEWS, "--device", "cpu", "--out", str(out)]
    )  # fmt: skip
    figures = json.loads(out.read_text())["VOC2012"]
    printed = capsys.readouterr().out
    for way in ("softmax", "raw", "fast", "auto", "fast with captions", "auto with captions"):
        assert f"mAP {way:20s} {figures[way]['mAP']:6.2f}" in printed
    assert figures["images"] == 6


def test_the_judge_thinks_of_a_whole_image_what_the_classifier_says_of_it(work: Path) -> None:
    images = torch.randint(
        0, 256, (3, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    whole = torch.eye(2, 3).expand(2, -1, -1)
    for sharper in (1.0, 1.5):
        judge = Judge(work / "pack", images, 64, sharper)
        found = in_windows(judge(np.array([2, 0]), whole, (2, 2)), 0)[:, 0]
        with torch.inference_mode():
            expected = (sharper * judge.models[0](squashed(images[[2, 0]], 64))).softmax(-1)
        assert torch.allclose(found, expected, rtol=5e-2, atol=1e-3)  # kept as bytes


def test_a_run_goes_on_from_a_model_that_is_there(work: Path) -> None:
    train.main(
        ["--pieces", str(work / "pieces"), "--out", str(work / "more"), "--keep", "6", "4", "--store", "64",
         "--set", f"{TINY},base={work / 'runs/a'}", "--judge-size", "64", *VIEWS, "--device", "cpu", "--minutes", "5",
         "--run", "still:lr=0,lr_image=0", "--run", "on:lr=1e-2"]
    )  # fmt: skip
    before, still, on = (
        model.read(work / name)[0].state_dict() for name in ("runs/a", "more/still", "more/on")
    )
    name = "text_projection"
    assert torch.equal(before[name], still[name])
    assert not torch.equal(before[name], on[name])
    lines = log_of(work / "more/on")
    assert lines[0]["recipe"]["base"] == "a", "not a folder of the machine it ran on"
    assert not any(line.get("phase") == "text" for line in lines)


def test_the_judge_reads_a_crop_off_the_locations_in_it(work: Path) -> None:
    images = torch.randint(
        0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    judge = Judge(work / "pack", images, 128)
    left_half_mirrored = torch.tensor([[[-0.5, 0, -0.5], [0, 1, 0]]])
    found = judge(np.array([0]), left_half_mirrored, (4, 2))
    whole = judge.logits(torch.tensor([0]))
    assert torch.allclose(found, whole[:, :, :, :2].flip(3), atol=0.02 * float(whole.abs().max()))


def test_how_sure_the_judge_is(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certainty.main(
        ["--pieces", str(work / "pack"), "--images", "6", "--size", "64", "--window", "2", "--store", "64",
         "--sharper", "0", "1", "--device", "cpu"]
    )  # fmt: skip
    flat, sharp = capsys.readouterr().out.splitlines()[-2:]
    assert flat.startswith("times 0: entropy 6.91 Flickr8k, 6.91 ImageNet")
    assert "NLL 6.91" in flat
    assert sharp.startswith("times 1: entropy")
    assert "windows right at least 0.3" in sharp


def test_a_trial_reads_a_small_part_of_a_pack(work: Path) -> None:
    few = pack.first(pack.read_index(work / "pack"), 3)
    assert len(few["flickr"]) == len(few["captions"]) == len(few["imagenet"]) == len(few["classes"]) == 3
    assert 30 <= len(few["corpus"]) <= 40
    assert few["nouns"] == pack.read_index(work / "pack")["nouns"]
