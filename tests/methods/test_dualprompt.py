"""DualPrompt against loops over images and labels, with prompts written out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from mltta import create_method
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.dualprompt import often_together
from mltta.model.encoded import Encoded
from tests import golden_data as golden
from tests.methods.test_dpe import units

LABELS = ["dog", "person", "boat", "cat", "bus"]
#: dog 0, person 1, boat 2, cat 3; bus 4 is never named beside another
MENTIONS = [[0, 1], [0, 1, 3], [0], [1, 2], [2], [3, 0, 1], [4, 4], [1], [1, 1]]
PROMPTS = [
    "a photo of a dog often contains a person, a cat.",
    "a photo of a person often contains a dog, a cat.",
    "a photo of a boat often contains a person.",
    "a photo of a cat often contains a dog, a person.",
    "a photo of a bus.",
]


def dualprompt(**options):
    captions = LabelledCaptions(units(len(MENTIONS), 32, seed=9), MENTIONS, len(LABELS))
    return create_method("dualprompt", golden.backbone("vit"), LABELS, captions=captions, **options)


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_scores_are_those_of_plain_loops(weight):
    backbone, images = golden.backbone("vit"), golden.stream(1)[:20]
    found = dualprompt(weight=weight)(Encoded({ViewSpec(count=1): images}))
    plain = [f"a photo of a {label}." for label in LABELS]
    for image, got in zip(images[:, 0], found, strict=True):
        total = [0.0] * len(LABELS)
        for share, prompts in ((1.0, plain), (weight, PROMPTS)):
            own = [math.exp(backbone.logit_scale * float(image @ t)) for t in backbone.encode_texts(prompts)]
            total = [score + share * e / sum(own) for score, e in zip(total, own, strict=True)]
        torch.testing.assert_close(got, torch.tensor(total), atol=1e-4, rtol=0)


def test_labels_occur_together_as_captions_name_them_and_composed_captions_do_not_count():
    captions = LabelledCaptions(units(9, 32, seed=9), MENTIONS, 5)
    assert often_together(captions, LABELS, 2) == [[1, 3], [0, 3], [1], [0, 1], []]
    assert often_together(captions, LABELS, 1) == [[1], [0], [1], [0], []]
    captions.composed = 6
    assert often_together(captions, LABELS, 2) == [[1, 3], [0, 3], [], [0, 1], []]


def test_without_other_labels_images_are_ranked_as_by_the_softmax_of_clip():
    images = Encoded({ViewSpec(count=1): golden.stream(1)[:20]})
    clip = create_method("clip", golden.backbone("vit"), LABELS)
    torch.testing.assert_close(dualprompt(others=0)(images), 2 * clip(images).softmax(dim=-1))


def test_it_is_marked_as_a_reconstruction_and_needs_captions():
    assert dualprompt().reconstruction
    with pytest.raises(ConfigError, match="needs captions"):
        create_method("dualprompt", golden.backbone("vit"), LABELS, captions=False)
