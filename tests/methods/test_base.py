"""The registry, the contract that every method keeps, and method-independent properties."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import torch
from PIL import Image

from mltta import LabelSet, create_method, list_methods
from mltta.encode import Encoded, encode, render, union
from mltta.errors import ConfigError
from mltta.methods.base import Method, register
from mltta.objectives import entropy
from mltta.views import ViewSpec
from tests import golden_data as golden

METHODS = ["clip", "ml-tta", "tpt"]


def encoded(method: Method, images: int = 1, seed: int = 0) -> Encoded:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(images, max(s.count for s in method.needs), 32, generator=generator)
    return Encoded(
        {spec: torch.nn.functional.normalize(features[:, : spec.count], dim=-1) for spec in method.needs}
    )


def test_the_methods_of_this_package_are_registered():
    assert set(METHODS) <= set(list_methods())


def test_a_name_is_registered_once():
    with pytest.raises(ConfigError, match="registered already"):
        register("clip", "again")(Method)


def test_unknown_methods_presets_and_options_are_named():
    backbone = golden.backbone("vit")
    with pytest.raises(ConfigError, match=r"no method 'clap'.*clip"):
        create_method("clap", backbone, ["dog"])
    with pytest.raises(ConfigError, match=r"no preset 'mine'.*paper"):
        create_method("tpt", backbone, ["dog"], preset="mine")
    with pytest.raises(ConfigError, match=r"no option 'lr_view'.*select_ratio"):
        create_method("tpt", backbone, ["dog"], lr_view=1.0)


@pytest.mark.parametrize("name", METHODS)
def test_one_label_works(name):
    method = create_method(name, golden.backbone("vit"), ["dog"])
    assert method(encoded(method, 2)).shape == (2, 1)
    assert method(encoded(method, 2)).isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_a_thousand_labels_work(name):
    labels = [f"thing {i}" for i in range(1000)]
    method = create_method(name, golden.backbone("vit"), labels)
    scores = method(encoded(method))
    assert scores.shape == (1, 1000)
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_views_that_are_all_the_same_give_finite_scores(name):
    method = create_method(name, golden.backbone("vit"), ["dog", "cat", "traffic light"])
    grey = Image.new("RGB", (64, 48), (128, 128, 128))
    backbone = golden.backbone("vit")
    scores = method(encode(backbone, [render(grey, method.needs, backbone.preprocess)]))
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_images_adapted_together_score_as_alone(name):
    method = create_method(name, golden.backbone("vit"), list(LabelSet.load("voc").texts))
    batch = encoded(method, 3)
    together = method(batch)
    for i in range(3):
        alone = method(Encoded({s: batch.features(s)[i : i + 1] for s in method.needs}))
        torch.testing.assert_close(alone[0], together[i], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["tpt", "ml-tta"])
def test_a_template_without_words_cannot_be_tuned_and_says_so(name):
    with pytest.raises(ConfigError, match="no context"):
        create_method(name, golden.backbone("vit"), ["dog"], template="{}")


def test_adapting_changes_the_scores():
    backbone = golden.backbone("vit")
    clip = create_method("clip", backbone, ["dog", "cat", "boat"])
    tuned = create_method("ml-tta", backbone, ["dog", "cat", "boat"])
    views = encoded(tuned)
    assert (tuned(views) / 2 - clip(views)).abs().max() > 1e-2


def test_several_methods_share_one_encoding():
    wanted = [ViewSpec(count=1), ViewSpec(count=16), ViewSpec(count=64), ViewSpec(count=8, augmix=True)]
    assert union(wanted) == [ViewSpec(count=64), ViewSpec(count=8, augmix=True)]
    features = torch.arange(64.0).reshape(1, 64, 1)
    shared = Encoded({ViewSpec(count=64): features})
    assert torch.equal(shared.features(ViewSpec(count=16)), features[:, :16])
    assert torch.equal(shared.features(ViewSpec(count=1, augmix=True)), features[:, :1])
    with pytest.raises(ConfigError):
        shared.features(ViewSpec(count=65))


def test_the_method_that_contributing_shows_works_as_it_stands(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (tmp_path / "mean_view.py").write_text(text.split("```python\n")[1].split("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    import_module("mean_view")
    method = create_method("mean-view", golden.backbone("vit"), ["dog", "cat", "boat"], views=20)
    views = encoded(method, 2)
    logits = method.logits(views.features(method.needs[0]), method.text.features)
    for i in range(2):  # the two most confident of twenty views
        kept = sorted(range(20), key=lambda j: float(entropy(logits[i, j])))[:2]
        torch.testing.assert_close(method(views)[i], logits[i, kept].mean(0))
