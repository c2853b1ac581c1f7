"""The label encoder against open_clip's own encode_text, in value and gradient."""

from __future__ import annotations

import open_clip
import pytest
import torch
from torch import nn

from benchmarks.text_tower import encode_text_with_context
from mltta import LabelSet, load_backbone
from mltta.errors import ConfigError, LabelError, WeightsError
from mltta.model.backbone import Backbone
from mltta.model.label_encoder import LabelEncoder, TextTower
from mltta.model.prompts import build_prompts
from tests import golden_data as golden


@pytest.fixture(scope="module", params=[None, False], ids=["accelerated", "plain"])
def tiny(request) -> Backbone:
    return golden.backbone("vit", accelerate=request.param)


def full_length(backbone: Backbone, encoder: LabelEncoder, context: torch.Tensor) -> torch.Tensor:
    return encode_text_with_context(backbone, encoder._prompts.tokens, context)


LABELS = {
    "one label": ["dog"],
    "very different lengths": [
        "dog",
        "a very long label with really many words in it that goes on and on",
        "tv",
        "hot dog",
    ],
    "200 labels": [f"label number {i} {'x ' * (i % 17)}".strip() for i in range(200)],
}


def check_against_full_length(backbone: Backbone, encoder: LabelEncoder) -> None:
    """Features and gradients at three contexts, against open_clip's encode_text of 77 tokens a label."""
    contexts = torch.stack([encoder.context, encoder.context + 0.1, encoder.context.flip(0)])
    features, pull_back = encoder.linearize(contexts)
    weight = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    gradient = pull_back(weight)
    torch.testing.assert_close(encoder(contexts), features, atol=2e-6, rtol=0)
    for i in range(3):
        context = contexts[i].clone().requires_grad_()
        want = full_length(backbone, encoder, context)
        torch.testing.assert_close(features[i], want.detach(), atol=2e-6, rtol=0)
        want_gradient = torch.autograd.grad(want, context, weight[i])[0]
        assert (gradient[i] - want_gradient).norm() < 1e-5 * want_gradient.norm()


@pytest.mark.parametrize("labels", LABELS)
def test_features_and_gradients_equal_full_length_encoding(tiny, labels):
    check_against_full_length(tiny, tiny.encode_labels(LabelSet.of(LABELS[labels])))


def test_many_gradients_go_back_through_one_shared_forward(tiny):
    encoder = tiny.encode_labels(LabelSet.of(["dog", "traffic light", "cat"]))
    features, pull_back = encoder.initial()
    weight = torch.randn(5, *features.shape[1:], generator=torch.Generator().manual_seed(1))
    together = pull_back(weight)
    one_by_one = torch.cat([pull_back(w[None]) for w in weight])
    torch.testing.assert_close(together, one_by_one, atol=1e-5, rtol=1e-4)


def test_a_context_per_label_equals_encoding_each_label_alone(tiny):
    labels = ["dog", "traffic light", "cat"]
    encoder = tiny.encode_labels(LabelSet.of(labels))
    contexts = torch.stack([encoder.context * (1 + i) for i in range(3)])[None]  # (1, C, M, W)
    together = encoder(contexts)[0]
    for i, label in enumerate(labels):
        alone = tiny.encode_labels(LabelSet.of([label]))(contexts[:, i])[0, 0]
        torch.testing.assert_close(together[i], alone, atol=2e-6, rtol=0)


def test_a_tower_that_is_not_causal_takes_the_plain_path():
    torch.manual_seed(0)
    text = {
        "context_length": 20,
        "vocab_size": 49408,
        "width": 32,
        "heads": 2,
        "layers": 2,
        "no_causal_mask": True,
    }
    text |= {"pool_type": "last", "proj_bias": True}
    model = open_clip.CustomTextCLIP(
        16, {"image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16}, text
    )
    tower = TextTower(model.eval())
    assert tower.tunable
    assert not tower.causal
    tokenizer = open_clip.SimpleTokenizer(context_length=20)
    labels = ["dog", "traffic light"]
    prompts = build_prompts(tokenizer, labels, template="a photo of a {}.", context_length=20)
    encoder = LabelEncoder(tower, prompts, None)
    want = model.encode_text(tokenizer([f"a photo of a {x}." for x in labels]), normalize=True)
    torch.testing.assert_close(encoder.features, want, atol=2e-6, rtol=0)
    features, pull_back = encoder.initial()
    weight = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    step = 1e-3 * torch.randn(encoder.context.shape, generator=torch.Generator().manual_seed(1))
    slope = (
        (encoder((encoder.context + step)[None]) - encoder((encoder.context - step)[None])) * weight
    ).sum() / 2
    assert slope.item() == pytest.approx((pull_back(weight)[0] * step).sum().item(), rel=1e-2)


def test_a_tower_without_room_for_context_still_scores_and_says_it_cannot_be_tuned():
    text = {
        "context_length": 20,
        "vocab_size": 49408,
        "width": 32,
        "heads": 2,
        "layers": 1,
        "embed_cls": True,
    }
    model = open_clip.CustomTextCLIP(
        16, {"image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16}, text
    )
    assert not TextTower(model).tunable


def test_a_text_tower_without_blocks_says_which_open_clip_to_install():
    """open_clip 4 has such ones; the error was an AttributeError."""
    model = nn.Module()
    model.token_embedding, model.transformer = nn.Embedding(2, 2), nn.Module()
    with pytest.raises(WeightsError, match=r"no transformer.resblocks.*pip install 'open_clip_torch>=3,<4'"):
        TextTower(model)


def test_given_contexts_of_any_length_take_the_words_place(tiny):
    for length in (1, 4, 16):
        context = 0.02 * torch.randn(length, 64, generator=torch.Generator().manual_seed(length))
        encoder = tiny.encode_labels(LabelSet.of(["dog", "hot dog"]), context=context)
        torch.testing.assert_close(encoder.features, full_length(tiny, encoder, context), atol=2e-6, rtol=0)


def test_the_template_is_the_default_context(tiny):
    encoder = tiny.encode_labels(LabelSet.of(["dog"]))
    want = tiny.model.encode_text(tiny.tokenizer(["a photo of a dog."]), normalize=True)
    torch.testing.assert_close(encoder.features, want, atol=2e-6, rtol=0)
    bare = tiny.encode_labels(LabelSet.of(["dog"]), template="{}")
    assert not bare.tunable
    want = tiny.model.encode_text(tiny.tokenizer(["dog"]), normalize=True)
    torch.testing.assert_close(bare.features, want, atol=2e-6, rtol=0)


def test_wrong_contexts_templates_and_overlong_labels_are_refused(tiny):
    with pytest.raises(ConfigError, match=r"\(4, 7\).*\(4, 64\)"):
        tiny.encode_labels(LabelSet.of(["dog"]), context=torch.zeros(4, 7))
    with pytest.raises(ConfigError, match=r"one \{\}"):
        tiny.encode_labels(LabelSet.of(["dog"]), template="a photo")
    with pytest.raises(LabelError, match=r"'word word.*too long.*tokens"):
        tiny.encode_labels(LabelSet.of(["dog", "word " * 90]))


def test_labels_change_without_reloading_the_model(tiny):
    before = tiny.encode_labels(LabelSet.of(["dog", "cat"])).features
    tiny.encode_labels(LabelSet.of(["boat"]))
    assert torch.equal(tiny.encode_labels(LabelSet.of(["dog", "cat"])).features, before)


def test_sentences_of_any_length_encode_as_open_clip_does(tiny):
    texts = ["a dog", "two cats on a sofa near a window with a long view over the town", "x", "a dog " * 60]
    want = tiny.model.encode_text(tiny.tokenizer(texts), normalize=True)
    torch.testing.assert_close(tiny.encode_texts(texts, batch_size=2), want, atol=2e-6, rtol=0)


def test_an_unknown_device_is_named():
    with pytest.raises(ConfigError, match="cuda:99"):
        load_backbone("RN50", random_weights=True, device="cuda:99")
