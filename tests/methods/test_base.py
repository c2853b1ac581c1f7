"""The registry, the settings of a method, and sharing one encoding; test_every_method.py holds what all keep."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest
import torch

from mltta import Tagger, create_method, list_methods
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods import registry
from mltta.methods.base import Method
from mltta.methods.config import Config
from mltta.methods.registry import register
from mltta.model.encoded import Encoded, union
from mltta.objectives import entropy
from tests import golden_data as golden
from tests.methods.test_every_method import EXAMPLE, encoded


def test_a_name_is_registered_once():
    with pytest.raises(ConfigError, match="already registered"):
        register("clip", "again")(Method)


def test_a_setting_that_hides_what_a_tagger_takes_is_refused():
    @dataclass(frozen=True)
    class Mine(Config):
        captions: int = 3

    with pytest.raises(ConfigError, match="mine: setting name 'captions' is reserved"):
        register("mine", "a method")(type("Other", (Method,), {"Config": Mine}))
    assert "mine" not in list_methods()
    given = set(inspect.signature(create_method).parameters) | set(inspect.signature(Tagger).parameters)
    assert given - {"options"} == registry.TAKEN


def test_unknown_methods_presets_and_options_are_named():
    backbone = golden.backbone("vit")
    with pytest.raises(ConfigError, match=r"unknown method 'clap'.*clip"):
        create_method("clap", backbone, ["dog"])
    with pytest.raises(ConfigError, match=r"unknown preset 'mine'.*paper"):
        create_method("tpt", backbone, ["dog"], preset="mine")
    with pytest.raises(ConfigError, match=r"unknown option 'lr_view'.*select_ratio"):
        create_method("tpt", backbone, ["dog"], lr_view=1.0)


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


def test_the_method_that_contributing_shows_averages_the_most_confident_views(monkeypatch):
    monkeypatch.setitem(registry._REGISTRY, EXAMPLE.name, EXAMPLE)
    method = create_method("mean-view", golden.backbone("vit"), ["dog", "cat", "boat"], views=20)
    views = encoded(method, 2)
    logits = method.logits(views.features(method.needs[0]), method.text.features)
    for i in range(2):  # the two most confident of twenty views
        kept = sorted(range(20), key=lambda j: float(entropy(logits[i, j])))[:2]
        torch.testing.assert_close(method(views)[i], logits[i, kept].mean(0))


def test_the_method_that_contributing_shows_is_none_of_the_package():
    assert EXAMPLE.name not in list_methods()
