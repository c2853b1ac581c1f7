"""The paper in one file gives the scores that the package gives."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from PIL import Image

import mltta
from mltta.captions.labelled import LabelledCaptions

EXAMPLES = Path(__file__).parents[1] / "examples"
PAPER = runpy.run_path(str(EXAMPLES / "ml_tta.py"))
VIEWS = 20


@pytest.mark.parametrize("photo", ["cat.jpg", "photographer.jpg"])
def test_the_paper_in_one_file_gives_the_scores_of_the_fast_path(photo):
    backbone = mltta.load_backbone("mini", device="cpu")
    labels, base = mltta.LabelSet.of("voc"), mltta.default_captions(backbone)
    sets = PAPER["strong_label_sets"](base.texts, labels)
    named = [i for i, own in enumerate(sets) if own]
    captions, k = torch.from_numpy(base.embeddings[named]), torch.tensor([len(sets[i]) for i in named])
    assert len(set(k.tolist())) > 2

    wants = backbone.preprocess
    views = PAPER["make_views"](Image.open(EXAMPLES / "photos" / photo).convert("RGB"), VIEWS, wants.size)
    features = backbone.encode_images(PAPER["to_pixels"](views, wants.mean, wants.std))
    tokens, n_context = PAPER["tokenize"](backbone.tokenizer, labels.texts)
    plain = PAPER["ml_tta"](backbone.model, tokens, n_context, features, captions, k)

    labelled = LabelledCaptions(captions, [sorted(sets[i]) for i in named], len(labels))
    method = mltta.create_method("ml-tta", backbone, labels, captions=labelled, views=VIEWS)
    fast = method(mltta.Encoded({method.needs[0]: features[None]}))[0]
    torch.testing.assert_close(plain, fast, atol=1e-4, rtol=0)

    clip = mltta.create_method("clip", backbone, labels)(mltta.Encoded({method.needs[0]: features[None]}))[0]
    assert (plain - 2 * clip).abs().max() > 0.1  # and something was adapted


def test_its_settings_are_the_papers():
    config = mltta.create_method("ml-tta", mltta.load_backbone("mini", device="cpu"), ["cat"]).config
    for name in ("views", "captions_per_view", "select_ratio", "lr_view", "lr_caption"):
        assert PAPER[name.upper()] == getattr(config, name)


def test_it_runs_as_a_program_and_finds_the_cat(capsys):
    PAPER["main"](str(EXAMPLES / "photos" / "cat.jpg"), "dog, cat, boat, bicycle")
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.split()[1] == "cat"
    assert len(rest) == 3


def test_a_longer_name_is_not_taken_for_a_shorter_one():
    sets = PAPER["strong_label_sets"](
        ["Hot dogs on a plate.", "Two dogs."], mltta.LabelSet.of("dog, hot dog")
    )
    assert sets == [{1}, {0}]


def test_it_can_be_read_in_one_sitting():
    assert len((EXAMPLES / "ml_tta.py").read_text(encoding="utf-8").splitlines()) <= 200
