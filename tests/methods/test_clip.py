"""Zero-shot CLIP, with one prompt a label or with many."""

from __future__ import annotations

import json

import pytest
import torch

from mltta import create_method, list_methods
from mltta.errors import ConfigError
from mltta.methods import method_class
from tests import golden_data as golden
from tests.methods.test_every_method import LABELS, encoded, make

TEMPLATES = ["a {}.", "the {} in a video game."]
TUNING = [name for name in list_methods() if "context" in method_class(name).requires]
FIXED = [name for name in list_methods() if "context" not in method_class(name).requires]


def test_scores_are_cosines_with_the_prompts_at_the_models_own_temperature():
    backbone = golden.backbone("vit")
    method = create_method("clip", backbone, LABELS)
    images = encoded(method, 3)
    text = backbone.encode_texts([f"a photo of a {label}." for label in LABELS])
    want = backbone.logit_scale * images.features(method.needs[0])[:, 0] @ text.T
    torch.testing.assert_close(method(images), want, atol=2e-4, rtol=0)


def test_an_ensemble_scores_as_the_average_of_its_prompts(tmp_path):
    backbone, said = golden.backbone("vit"), {label: [f"this is the {label}."] for label in LABELS}
    file = tmp_path / "said.json"
    file.write_text(json.dumps(said))
    method = create_method("clip", backbone, LABELS, template=TEMPLATES, descriptions=file)
    images = encoded(method, 3)
    prompts = [[template.format(label) for template in TEMPLATES] + said[label] for label in LABELS]
    mean = torch.stack([backbone.encode_texts(texts).mean(dim=0) for texts in prompts])
    cosines = torch.cosine_similarity(images.features(method.needs[0]), mean[None], dim=-1)
    torch.testing.assert_close(method(images), backbone.logit_scale * cosines, atol=2e-4, rtol=0)
    by_mapping = create_method("clip", backbone, LABELS, template=TEMPLATES, descriptions=said)
    assert torch.equal(by_mapping(images), method(images))


@pytest.mark.parametrize("name", FIXED)
def test_methods_that_tune_no_context_take_an_ensemble(name):
    one, many = make(name), make(name, template=TEMPLATES)
    images = encoded(one, 3)
    assert many(images).isfinite().all()
    assert not torch.allclose(many(images), one(images))


@pytest.mark.parametrize("name", TUNING)
@pytest.mark.parametrize(
    "ensemble",
    [
        {"template": ["a {}.", "the {}."]},
        {"template": "openai"},
        {"descriptions": {label: ["a thing."] for label in LABELS}},
    ],
    ids=["a list", "a set", "descriptions"],
)
def test_methods_that_tune_the_context_refuse_an_ensemble(name, ensemble):
    with pytest.raises(ConfigError, match=f"{name} tunes.*single template.*clip"):
        make(name, **ensemble)


def test_a_list_of_one_template_is_no_ensemble():
    method = create_method("tpt", golden.backbone("vit"), LABELS, template=["a photo of a {}."])
    assert method.text.tunable
