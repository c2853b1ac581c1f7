"""Training prompts: the loss, that it learns what is there to learn, and the command that does it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from mltta import CaptionBase, LabelSet
from mltta.data.class_folders import load_class_folders
from mltta.errors import ConfigError, DatasetError, LabelError
from mltta.evaluation.train_prompts import (
    Examples,
    Training,
    _shaken,
    caption_examples,
    image_examples,
    train_prompts,
)
from mltta.model.learned_prompts import load_prompts
from mltta.model.prompts import random_context
from tests.cli.test_cli import MODEL, mltta
from tests.model.prompted import LABELS, tiny
from tests.test_tagger import photo

NAMES = LabelSet.of(LABELS)


def examples(seed: int = 0, count: int = 60) -> Examples:
    """Examples that some unknown context explains: each shows the labels whose features it is the mean of."""
    unknown = tiny().encode_labels(NAMES, context=random_context(4, 64, seed=99) * 5).features
    generator = torch.Generator().manual_seed(seed)
    targets = torch.zeros(count, len(LABELS))
    for row in targets:
        row[
            torch.randperm(len(LABELS), generator=generator)[
                : 1 + int(torch.rand(1, generator=generator) * 2)
            ]
        ] = 1
    return Examples(F.normalize(targets @ unknown, dim=-1), targets, f"{count} captions", noise=1.0)


def loss(context: torch.Tensor, given: Examples) -> float:
    """Cross-entropy to the label set, label by label."""
    text = tiny().encode_labels(NAMES, context=context).features
    total = 0.0
    for feature, target in zip(given.features, given.targets, strict=True):
        log_p = (tiny().logit_scale * text @ feature).log_softmax(-1)
        total -= float(log_p[target == 1].mean())
    return total / len(given)


def test_training_lowers_the_loss_and_finds_held_out_labels():
    given = examples()
    done = train_prompts(tiny(), NAMES, given, Training(tokens=4, epochs=12, batch=16, lr=1e-2, noise=0))
    words = tiny().encode_labels(NAMES).context
    assert loss(done.prompts.context, given) < loss(words, given) - 0.05
    assert done.after > done.before + 5
    assert done.prompts.about["held_out_map"] == {"template": done.before, "trained": done.after}


def test_the_first_step_is_adam_s_on_the_written_loss():
    """One batch, one step: torch's Adam on the loss spelled out, from the words "a photo of a"."""
    given = examples(count=8)
    done = train_prompts(
        tiny(), NAMES, given, Training(tokens=4, epochs=1, batch=8, lr=1e-3, noise=0, held_out=0)
    )
    encoder = tiny().encode_labels(NAMES)
    context = torch.nn.Parameter(encoder.context.clone())
    logits = tiny().logit_scale * given.features @ encoder.plain(context[None])[0].T
    share = given.targets / given.targets.sum(1, keepdim=True)
    (-(share * logits.log_softmax(-1)).sum(1)).mean().backward()
    torch.optim.Adam([context], lr=1e-3).step()
    torch.testing.assert_close(done.prompts.context, context.detach(), atol=1e-6, rtol=0)


def test_the_seed_alone_decides_what_is_learned():
    how = {"tokens": 3, "epochs": 2, "batch": 16}
    first, same, other = (
        train_prompts(tiny(), NAMES, examples(), Training(**how, seed=seed)).prompts for seed in (0, 0, 1)
    )
    assert first.digest == same.digest
    assert first.digest != other.digest
    assert first.context.shape == (3, 64)


def test_noise_keeps_unit_length_and_has_the_length_it_says():
    features = F.normalize(torch.randn(4000, 32, generator=torch.Generator().manual_seed(0)), dim=-1)
    shaken = _shaken(features, 1.0, torch.Generator().manual_seed(1))
    torch.testing.assert_close(shaken.norm(dim=-1), torch.ones(4000))
    # a random vector as long as the feature is about at right angles to it
    assert float((shaken * features).sum(-1).mean()) == pytest.approx(math.sqrt(0.5), abs=0.02)
    assert _shaken(features, 0.0, torch.Generator()) is features


def test_captions_stand_for_images_with_the_labels_they_name():
    base = CaptionBase.build(
        ["A dog and a cat.", "Snow.", "A red bus by a boat.", *(f"A {n}." for n in LABELS)], tiny()
    )
    given = caption_examples(tiny(), NAMES, base)
    assert len(given) == 2 + len(LABELS)
    assert given.targets[0].tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert given.targets[1].tolist() == [0, 0, 1, 0, 0, 1, 0]
    torch.testing.assert_close(given.features[:1], tiny().encode_texts(["A dog and a cat."]))


@pytest.fixture
def shots(tmp_path):
    for i, name in enumerate(["dog", "Red_bus"]):
        (tmp_path / "shots" / name).mkdir(parents=True)
        for j in range(3):
            photo(10 * i + j, (40, 40)).save(tmp_path / "shots" / name / f"{j}.png")
    return tmp_path / "shots"


def test_folders_named_as_labels_give_their_images_those_labels(shots):
    data = load_class_folders(shots, ["red bus", "dog"])
    assert data.labels.names == ("red bus", "dog")
    assert dict(zip(data.ids, data.targets.tolist(), strict=True))["Red_bus/1.png"] == [1, 0]
    given = image_examples(tiny(), data, shots=2)
    assert given.targets.sum(0).tolist() == [2, 2]
    assert torch.equal(image_examples(tiny(), data, shots=2).features, given.features)
    with pytest.raises(DatasetError, match="no images of cat"):
        load_class_folders(shots, ["red bus", "dog", "cat"])
    with pytest.raises(DatasetError, match=r"folder 'dog': No label 'dog'"):
        load_class_folders(shots, ["red bus"])
    (shots.parent / "empty").mkdir()
    with pytest.raises(DatasetError, match="a folder of images for each label"):
        load_class_folders(shots.parent / "empty")


def test_the_command_trains_on_captions_and_the_file_tags(tmp_path):
    captions, out = tmp_path / "captions.txt", tmp_path / "mine.safetensors"
    captions.write_text(
        "\n".join(f"A {a} beside a {b}." for a in ("dog", "cat", "sofa") for b in ("bus", "man"))
    )
    train = ["prompts", "train", *MODEL, "--captions", captions, "--labels", "dog, cat, sofa", "--out", out]
    done = mltta(*train, "--epochs", 2, "--tokens", 5)
    prompts = load_prompts(out)
    assert prompts.context.shape == (5, 64)
    assert prompts.about["labels"] == ["dog", "cat", "sofa"]
    assert prompts.about["training"]["noise"] == 1.0
    assert "training on 6 captions" in done.stderr
    photo(0, (40, 40)).save(tmp_path / "a.png")
    tag = [
        "tag",
        tmp_path / "a.png",
        *MODEL,
        "--labels",
        "dog, cat, sofa",
        "--captions",
        captions,
        "-f",
        "json",
    ]
    with_words = mltta(*tag, "--top-k", 3, "--method", "clip").stdout
    assert mltta(*tag, "--top-k", 3, "--method", "clip", "--prompts", out).stdout != with_words
    wrong = mltta("tag", tmp_path / "a.png", "--prompts", out, check=2)
    assert "mine.safetensors was learned for another model: its vectors are 64 wide" in wrong.stderr


def test_the_command_trains_on_images_in_folders_or_with_a_file_of_labels(shots, tmp_path):
    train = [
        "prompts",
        "train",
        *MODEL,
        "--labels",
        "dog, red bus",
        "--epochs",
        1,
        "--tokens",
        2,
        "--images",
        shots,
    ]
    mltta(*train, "--out", tmp_path / "one.safetensors", "--shots", 2)
    assert load_prompts(tmp_path / "one.safetensors").about["trained_on"] == "4 images of folders-shots"
    (shots / "labels.csv").write_text("image,labels\ndog/0.png,dog\nRed_bus/0.png,red bus|dog\n")
    mltta(*train, "--out", tmp_path / "two.safetensors")
    about = load_prompts(tmp_path / "two.safetensors").about
    assert about["trained_on"] == "2 images of folder-shots"
    assert about["training"]["noise"] == 0.0
    assert about["held_out_map"] == {"template": None, "trained": None}


def test_settings_that_make_no_sense_are_refused(tmp_path):
    for wrong in ({"tokens": 0}, {"epochs": 0}, {"lr": 0.0}, {"noise": -1.0}, {"held_out": 1.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Training(**wrong)
    train = ["prompts", "train", *MODEL, "--labels", "dog", "--out"]
    assert "saved as .safetensors" in mltta(*train, tmp_path / "a.pt", check=2).stderr
    out = tmp_path / "a.safetensors"
    assert "give --images too" in mltta(*train, out, "--shots", 2, check=2).stderr
    both = mltta(*train, out, "--images", tmp_path, "--captions", tmp_path, check=2)
    assert "not both" in both.stderr
    with pytest.raises(LabelError, match="too long"):
        train_prompts(tiny(), NAMES, examples(), Training(tokens=80, epochs=1))
