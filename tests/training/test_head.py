"""The end of the image tower is trained on maps of photos, and the text tower follows."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from tests.training.clones import clone, picture, saved, source
from tests.training.standins import write_classifier, write_data, write_minilm
from training import encode, gather, head, pack, prepare, retext
from training import model as clip
from training.head import Head, cropped, pooled
from training.maps import Maps

MINI = gather.meanings.EVERYDAY.parents[1] / "mini"
NOUNS = ["dog", "cat", "horse", "person", "animal", "car", "bench", "grass", "sky", "accordion", "bird"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with few nouns, labeled photos, and their maps."""
    work = tmp_path_factory.mktemp("head")
    write_data(work / "data")
    write_classifier(work / "efficientnet-lite2-random.pth")
    write_minilm(work / "minilm")
    prepare.main(
        ["--data", str(work / "data"), "--out", str(work), "--classifier", str(work / "efficientnet-lite2-random.pth"),
         "--minilm", str(work / "minilm"), "--lists", "50", "--limit-texts", "300", "--least", "0", "--piece", "5"]
    )  # fmt: skip
    index = pack.read_index(work / "pack")
    columns = [index["nouns"].index(noun) for noun in NOUNS]
    labels = np.load(work / "pack" / pack.LABELS)["labels"][:, columns]
    np.savez_compressed(work / "pack" / pack.LABELS, labels=labels)
    index["nouns"] = NOUNS
    pack.write_index(work / "pack", index)
    files = {
        f"{kind}/{i}.jpg": saved(picture(100 * n + i))
        for n, kind in enumerate(("cat", "horse"))
        for i in range(8)
    }
    commit = clone(work / "clones", "a/pets", files)
    manifest = [
        source("a/pets", {"cat": "cat|animal", "horse": "horse|animal"}, commit=commit, absent="classes")
    ]
    (work / "aside").mkdir()
    (work / "aside/other.jpg").write_bytes(saved(picture(999)))
    gather.gather(manifest, work / "clones", [work / "aside"], work / "labeled", share=0.2)
    arguments = ["--model", str(MINI), "--labeled", str(work / "labeled"), "--pieces", str(work / "pack")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "KEPT_ASIDE", 4)
        encode.main([*arguments, "--out", str(work / "maps")])
    return work


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = clip.read(MINI)[0].state_dict()
    return found


def test_a_map_and_the_head_give_the_models_feature(work: Path, state: dict[str, torch.Tensor]) -> None:
    maps = Maps.open(work / "maps")
    images = pack.images(work / "pack", pack.FLICKR, pack.read_index(work / "pack"))
    own = Head.of(state, torch.zeros(1, 384))
    found = own.project(own.locations(maps.read(np.array([maps.first_captioned + 3]))).mean(1))
    image = (
        Image.open(io.BytesIO(images[3]))
        .convert("RGB")
        .resize((encode.SIDE, encode.SIDE), Image.Resampling.BICUBIC)
    )
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    with torch.inference_mode():
        wanted = clip.encode_image(clip.read(MINI)[0], pixels)
    assert F.cosine_similarity(found, wanted).item() > 0.9999


def test_a_head_put_into_a_model_is_that_models_head(state: dict[str, torch.Tensor]) -> None:
    own = Head.of(state, torch.zeros(1, 384))
    with torch.no_grad():
        own.weight.mul_(1.5), own.bias.add_(0.25), own.shift.sub_(0.5)
    again = Head.of(own.put_into(state), torch.zeros(1, 384))
    for name in ("weight", "bias", "projection", "shift"):
        assert torch.allclose(getattr(own, name), getattr(again, name), atol=1e-5)
    assert torch.equal(Head.of(state, torch.zeros(1, 384)).projection, state["visual.head.proj.weight"])
    assert not torch.equal(own.shift, state["visual.head.proj.bias"]), "a model's own tensors do not change"


def test_labels_of_photos_reach_their_rows(work: Path) -> None:
    maps = Maps.open(work / "maps")
    value, known = maps.targets(np.arange(maps.sizes[0]))
    cat, horse, person = (NOUNS.index(noun) for noun in ("cat", "horse", "person"))
    assert torch.equal(value[:, cat] + value[:, horse], torch.ones(len(value)))
    assert (known[:, [cat, horse]] > 0.7).all()
    assert (known[:, person] == 0).all(), "people are in many photos"
    assert len(np.intersect1d(maps.rows, maps.held)) == 0
    assert len(maps.held) >= 3
    without = Maps.open(work / "maps", ["horse"])
    assert (value[torch.from_numpy(without.rows), horse] == 0).all()


def test_windows_are_means_and_crops_are_squares() -> None:
    maps = torch.randn(2, 81, 4)
    naive = torch.stack(
        [maps.view(2, 9, 9, 4)[:, y : y + 3, x : x + 3].mean((1, 2)) for y in (0, 3, 6) for x in (0, 3, 6)], 1
    )
    assert torch.allclose(pooled(maps, 9), naive, atol=1e-6)
    numbers = torch.arange(81.0).view(1, 81, 1)
    part = cropped(numbers, 5, np.random.default_rng(0))[0, :, 0].view(5, 5)
    assert torch.equal(part - part[0, 0], torch.arange(5.0)[:, None] * 9 + torch.arange(5.0))
    assert cropped(numbers, 9, np.random.default_rng(0)) is numbers


def test_a_run_learns_its_photos_and_the_texts_follow(work: Path, state: dict[str, torch.Tensor]) -> None:
    settings = [
        "steps=24",
        "batch=12",
        "composed=4",
        "longest=4",
        "captioned=0.34",
        "lr_nouns=0.03",
        "w_anchor=0",
        "w_keep=0",
    ]
    common = ["--maps", str(work / "maps"), "--model", str(MINI)]
    head.main([*common, "--out", str(work / "run"), "--minutes", "2", "--set", *settings])
    lines = [json.loads(line) for line in (work / "run/log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line.get("phase") == "head"]
    assert steps[-1]["rank"] < steps[0]["rank"]
    assert {"noun", "somewhere", "answer", "composed", "contrastive", "keep", "anchor"} <= steps[-1].keys()
    assert lines[-1]["phase"] == "held out"
    retext.main(
        [
            *common,
            "--head",
            str(work / "run"),
            "--pieces",
            str(work / "pack"),
            "--out",
            str(work / "whole"),
            "--steps",
            "30",
            "--batch",
            "32",
        ]
    )
    made = clip.read(work / "whole")[0].state_dict()
    assert not torch.equal(made["visual.trunk.conv_head.weight"], state["visual.trunk.conv_head.weight"])
    assert torch.equal(
        made["visual.trunk.blocks.3.0.conv_pw.weight"], state["visual.trunk.blocks.3.0.conv_pw.weight"]
    )
    texts = [json.loads(line)["loss"] for line in (work / "whole/text.jsonl").read_text().splitlines()]
    assert texts[-1] < texts[0]


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="'stepz' is not a setting; choose from seed, batch"):
        head.changed(head.HeadRecipe(), ["stepz=3"])
    assert head.changed(head.HeadRecipe(), ["steps=3", "lr=1e-2"]).lr == 0.01


def test_some_photos_per_label_are_encoded() -> None:
    facts = [{"terms": ["cat"], "labels": ["cat"], "held_out": False, "source": "a"} for _ in range(300)]
    facts += [
        {"terms": ["tench"], "labels": ["tench", "fish"], "held_out": False, "source": "a"} for _ in range(60)
    ]
    facts += [
        {"terms": ["thing"], "labels": ["thing"], "held_out": held, "source": "a"}
        for held in (False, True) * 20
    ]
    facts += [
        {"terms": ["thing"], "labels": ["thing"], "held_out": False, "source": "all"} for _ in range(30)
    ]
    photos = encode.Labeled(facts, [b""] * len(facts), {}, frozenset({"all"}))
    rows = encode.chosen(photos)
    terms = [facts[i]["terms"][0] for i in rows]
    assert terms.count("cat") == 250
    assert terms.count("tench") == 40
    assert terms.count("thing") == 12 + 1 + 30
