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
from torch.nn import functional as F

from mltta.labels import LabelSet
from tests.training.standins import write_classifier, write_data, write_minilm, write_voc
from training import certainty, evaluate, holdout, model, pack, pieces, prepare, tokenizer, train
from training.images import squashed
from training.judge import Judge, in_windows
from training.match_phase import MatchPhase
from training.material import Material
from training.recipe import Recipe
from training.ship import FILES
from training.soup import mixed
from training.towers import Towers
from training.windows import features, locations

VIEWS = ("--views", "64", "96x2x1", "128x2x2")
TINY = (
    "text_width=32,text_layers=1,text_steps=3,text_batch=32,steps=2,side=64,batch=8,sizes=128,large=1,"
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
    write_minilm(work / "minilm")
    prepare.main(
        ["--data", str(work / "data"), "--out", str(work), "--classifier", str(work / "efficientnet-lite2-random.pth"),
         "--minilm", str(work / "minilm"), "--merges", "300", "--lists", "50", "--limit-texts", "300", "--least", "0",
         "--piece", "5"]
    )  # fmt: skip
    train.main(
        ["--pieces", str(work / "pieces"), "--out", str(work / "runs"), "--set", TINY, "--keep", "6", "4",
         "--store", "64", "--judge-sizes", "64", "96", *VIEWS, "--device", "cpu", "--minutes", "5",
         "--run", "a", "--run", "b:seed=1,pull=1,frozen=2", "--soup"]
    )  # fmt: skip
    return work


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
        assert steps[-1]["step"] == 1
        last = lines[-1]
        assert last["phase"] == "held out"
        assert {
            "recall@1",
            "noun mAP softmax",
            "nouns mAP one",
            "nouns mAP auto",
            "mosaics mAP auto",
            "classifier KL one",
            "classifier KL fast",
        } <= last.keys()


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


def test_statistics_and_frozen_blocks_stay_the_classifiers_and_the_rest_learns(work: Path) -> None:
    source = dict(zip(*_classifier(work), strict=True))
    learned = model.read(work / "runs/b")[0].visual.trunk.state_dict()
    assert torch.equal(learned["bn2.running_var"], source["bn2.running_var"])
    assert torch.equal(
        learned["blocks.1.0.conv_pw.weight"], source["blocks.1.0.conv_pw.weight"].half().float()
    )
    assert not torch.equal(
        learned["blocks.4.0.conv_pw.weight"], source["blocks.4.0.conv_pw.weight"].half().float()
    )


def test_a_soup_is_the_mean_of_its_runs(work: Path) -> None:
    a, b, soup = (model.read(work / "runs" / n)[0].state_dict() for n in ("a", "b", "soup"))
    name = "visual.head.proj.weight"
    assert not torch.equal(a[name], b[name])
    assert torch.allclose(soup[name], (a[name] + b[name]) / 2, atol=1e-4)


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
        judge = Judge(work / "pack", images, (64,), sharper)
        found = in_windows(judge(np.array([2, 0]), whole, (2, 2)), 0)[:, 0]
        with torch.inference_mode():
            expected = (sharper * judge.models[0](squashed(images[[2, 0]], 64))).softmax(-1)
        assert torch.allclose(found, expected, rtol=1e-2, atol=1e-4)  # kept in half precision


def test_a_run_goes_on_from_a_model_that_is_there(work: Path) -> None:
    train.main(
        ["--pieces", str(work / "pieces"), "--out", str(work / "more"), "--keep", "6", "4", "--store", "64",
         "--set", f"{TINY},base={work / 'runs/a'}", "--judge-sizes", "64", *VIEWS, "--device", "cpu", "--minutes", "5",
         "--run", "still:lr=0,lr_image=0", "--run", "on:lr=1e-2",
         "--run", "match:steps=0,match_steps=2,match_batch=4,match_large=1,keep_size=160,lr_match=1e-2"]
    )  # fmt: skip
    before, still, on, match = (
        model.read(work / name)[0].state_dict() for name in ("runs/a", "more/still", "more/on", "more/match")
    )
    name = "text_projection"
    assert torch.equal(before[name], still[name])
    assert not torch.equal(before[name], on[name])
    lines = log_of(work / "more/on")
    assert lines[0]["recipe"]["base"] == "a", "not a folder of the machine it ran on"
    assert not any(line.get("phase") == "text" for line in lines)
    assert [line["phase"] for line in log_of(work / "more/match")[1:]] == ["match", "match", "held out"]
    changed = {k for k in before if not torch.equal(before[k], match[k])}
    assert {"visual.head.proj.weight", "visual.trunk.conv_stem.weight"} <= changed
    assert all(k.startswith("visual.") and "running" not in k for k in changed), "texts and statistics stay"


def test_the_judge_reads_a_crop_off_the_locations_in_it(work: Path) -> None:
    judge = Judge(work / "pack", torch.zeros(1, 3, 64, 64, dtype=torch.uint8), (128,))
    judge.logits = torch.randn(1, 1000, 4, 4).half()
    left_half_mirrored = torch.tensor([[[-0.5, 0, -0.5], [0, 1, 0]]])
    found = judge(np.array([0]), left_half_mirrored, (4, 2))
    assert torch.allclose(found, judge.logits[:, :, :, :2].flip(3).float(), atol=1e-5)


def test_disagreement_is_the_mean_divergence_from_the_classifiers(work: Path) -> None:
    material = Material(work / "pack", torch.device("cpu"), 64, (3, 2), None)
    towers, images = model.read(work / "runs/a")[0], material.images[:3]
    judge = Judge(work / "pack", images, (64,))
    prompts = material.sentences.texts.batch(material.sentences.classes[:, 0])
    names = model.encode_text(towers, *prompts).detach()
    found = []
    for image in images:
        x = squashed(image[None], 64)
        said = torch.stack([c(x) for c in judge.models]).mean(0).softmax(-1)
        own = (towers.logit_scale.exp() * model.encode_image(towers, x) @ names.T).softmax(-1).detach()
        found.append(float((said * (said / own).log()).sum()))
    assert holdout.disagreement(towers, material, judge, 64, 0) == pytest.approx(np.mean(found), rel=1e-3)


@pytest.mark.parametrize("window", [0, 2])
def test_the_last_phase_follows_the_classifiers_and_keeps_what_was_said(work: Path, window: int) -> None:
    recipe = Recipe().changed(f"{TINY},base={work / 'runs/a'}")
    material = Material(work / "pack", torch.device("cpu"), 64, (3, 2), None)
    judge = Judge(work / "pack", material.images, (64,))
    phase = MatchPhase(material, Towers(material, recipe), judge, recipe)
    pixels = phase.drawn(96, 4)
    phase.drawn = lambda size, count: pixels  # type: ignore[method-assign]
    losses = phase.at(96, 4, window)
    with torch.no_grad():
        views = features(phase.before, locations(phase.before, pixels), window).flatten(0, 1)
        maps = [c.forward_features(pixels) for c in judge.models]
        parts = [F.avg_pool2d(m, window or 3, 1).flatten(2).transpose(1, 2) for m in maps]
        pairs = zip(judge.models, parts, strict=True)
        said = torch.stack([c.classifier(p) for c, p in pairs]).mean(0).softmax(-1).flatten(0, 1)
        own, nouns = ((phase.scale * views @ t.T).log_softmax(-1) for t in (phase.classes, phase.nouns))
    assert losses["match"].item() == pytest.approx(-(said * own).sum(-1).mean().item(), rel=1e-3)
    # nothing has changed yet: following oneself costs one's own entropy
    assert losses["keep"].item() == pytest.approx(-(nouns.exp() * nouns).sum(-1).mean().item(), rel=1e-3)


def test_how_sure_the_judge_is(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certainty.main(
        ["--pieces", str(work / "pack"), "--images", "6", "--sizes", "64", "--window", "2", "--store", "64",
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


def _classifier(work: Path) -> tuple[list[str], list[torch.Tensor]]:
    state = torch.load(work / "efficientnet-lite2-random.pth", weights_only=True)
    return list(state), list(state.values())
