"""MaPLe's prompted backbone against plain code, its gradients, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from mltta import CaptionBase, LabelSet, Tagger, create_method, load_backbone
from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.errors import CaptionError, ConfigError, WeightsError
from mltta.evaluation.evaluate import evaluate
from mltta.evaluation.recipes import Recipe
from mltta.images.decode import load_image
from mltta.images.specs import ViewSpec
from mltta.images.views import render_views
from mltta.model.encoded import Encoded
from mltta.model.learned_prompts import load_prompts
from mltta.model.maple import with_prompts
from mltta.session.cache import feature_key
from mltta.session.execution import Execution
from tests import golden_data as golden
from tests.evaluation.scene import make_dataset
from tests.methods.test_table2 import ml_tta
from tests.model.prompted import LABELS, Plain, maple, maple_state, tiny
from tests.test_tagger import photo


def views(count: int, size: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def test_images_labels_and_sentences_are_encoded_as_plain_code_does():
    backbone, plain, pixels = with_prompts(tiny(), maple()), Plain(tiny(), maple(), LABELS), views(11)
    with torch.no_grad():
        torch.testing.assert_close(
            backbone.encode_images(pixels), plain.images(pixels, plain.start), atol=2e-6, rtol=0
        )
        text = backbone.encode_labels(LabelSet.of(LABELS))
        torch.testing.assert_close(text.features, plain.text(plain.start), atol=2e-6, rtol=0)
        sentences = ["dog", "a dog and a boat on a lake.", "two red buses in a street"]
        torch.testing.assert_close(
            backbone.encode_texts(sentences), plain.sentences(sentences), atol=2e-6, rtol=0
        )
    assert (backbone.encode_images(pixels) - tiny().encode_images(pixels)).abs().max() > 0.01
    assert (backbone.encode_texts(sentences) - tiny().encode_texts(sentences)).abs().max() > 0.01


def test_the_words_behind_the_two_vectors_stay():
    text = with_prompts(tiny(), maple()).encode_labels(LabelSet.of(["dog"]))
    assert text._prompts.texts == ("X X of a dog.",)
    assert text.context.shape == (2, 64)


def test_gradients_reach_the_context_through_both_towers():
    """The pull-back of chosen views equals autograd's over all of them, at contexts that differ by image."""
    backbone, plain = with_prompts(tiny(), maple()), Plain(tiny(), maple(), LABELS)
    pixels = [views(6, seed=seed) for seed in (1, 2)]
    spec = ViewSpec(count=6)
    looks = [lambda spec, preprocess, which, own=own: own[which] for own in pixels]
    encoded = Encoded({spec: torch.stack([backbone.encode_images(own) for own in pixels])}, looks)
    contexts = torch.stack([plain.start, plain.start + 0.1])
    gradients = views(2 * 6 * 32 // 3, 1, seed=3).view(2, 6, 32)
    gradients[0, :4] = 0
    gradients[1, 5] = 0
    seen = backbone.views(encoded, [spec])
    torch.testing.assert_close(seen(contexts)[1], plain.images(pixels[1], contexts[1]), atol=2e-6, rtol=0)
    got = seen.pull_back(contexts, gradients)
    for i in range(2):
        leaf = contexts[i].clone().requires_grad_()
        (want,) = torch.autograd.grad(plain.images(pixels[i], leaf), leaf, gradients[i])
        assert (got[i] - want).abs().max() < 1e-5 * want.abs().max()
        assert want.abs().max() > 1e-4


def scene(prompted, pixels, captions, labels=LABELS):
    """ML-TTA on a prompted backbone, and an image's views as it takes them."""
    method = create_method("ml-tta", prompted, labels, captions=captions, views=len(pixels), select_ratio=0.5)
    features = prompted.encode_images(pixels)[None]
    return method, Encoded({method.needs[0]: features}, [lambda spec, preprocess, which: pixels[which]])


def test_one_ml_tta_step_on_a_vit_b_16_from_the_released_layout_equals_plain_code(tmp_path):
    state = maple_state(512, 768)
    state |= {
        "prompt_learner.token_prefix": torch.zeros(3, 1, 512),
        "image_encoder.proj": torch.zeros(768, 512),
    }
    torch.save({"state_dict": state, "epoch": 2}, tmp_path / "model.pth.tar-2")
    prompts = load_prompts(tmp_path / "model.pth.tar-2")
    torch.manual_seed(0)
    base = load_backbone("ViT-B/16", random_weights=True, device="cpu")
    prompted, plain, pixels = with_prompts(base, prompts), Plain(base, prompts, LABELS[:3]), views(2, 224)
    sentences = ["a cat and a dog", "a dog", "boat"]
    captions = LabelledCaptions(prompted.encode_texts(sentences), [[0, 1], [0], [2]], 3)
    method, encoded = scene(prompted, pixels, captions, LABELS[:3])
    with torch.no_grad():
        want = plain.images(pixels, plain.start)
    torch.testing.assert_close(encoded.features(method.needs[0])[0], want, atol=1e-4, rtol=0)
    got = method(encoded)[0]
    torch.testing.assert_close(got, ml_tta(plain, pixels, method.captions, ratio=0.5), atol=1e-4, rtol=0)
    unmoved = 2 * plain.scale * want[0] @ method.text.features.T
    assert (got - unmoved).abs().max() > 0.01, "the step must move the scores to be worth comparing"


def test_every_image_starts_from_the_checkpoint_s_context():
    prompted = with_prompts(tiny(), maple())
    captions = CaptionBase.build([f"A {label} in the sun." for label in LABELS], prompted)
    method, first = scene(prompted, views(8, seed=4), captions)
    _, second = scene(prompted, views(8, seed=5), captions)
    alone = method(first)
    method(second)
    assert torch.equal(method(first), alone)
    assert torch.equal(method.text.context, maple().context)
    assert not torch.equal(method(second), alone)


def test_what_is_keyed_by_the_backbone_is_keyed_by_its_prompts():
    plain, one, other = tiny(), with_prompts(tiny(), maple()), with_prompts(tiny(), maple(seed=1))
    again = with_prompts(tiny(), maple())
    spec = ViewSpec(count=2)
    for key in ("text_fingerprint", "image_fingerprint"):
        assert len({getattr(backbone, key) for backbone in (plain, one, other)}) == 3
        assert getattr(again, key) == getattr(one, key)
    assert feature_key(plain, spec, 0)["weights"] != feature_key(one, spec, 0)["weights"]
    base = CaptionBase.build(["A dog."], plain)
    for wrong in (one, other):
        with pytest.raises(
            CaptionError, match=rf"other prompts.*tiny with MaPLe prompts {wrong.prompts.digest[:8]}"
        ):
            label_captions(LabelSet.of(LABELS), wrong, base)
    with pytest.raises(CaptionError, match="other prompts"):
        label_captions(LabelSet.of(LABELS), other, CaptionBase.build(["A dog."], one))


def test_the_tagger_looks_again_and_answers_the_same_alone_and_in_a_list():
    prompted = with_prompts(tiny(), maple())
    captions = CaptionBase.build([f"A {label} in the sun." for label in LABELS], prompted)
    tagger = Tagger(prompted, LABELS, "ml-tta", captions=captions, views=6, select_ratio=0.5)
    assert "pixels" in tagger.method.requires
    alone = tagger(photo(1))
    assert list(tagger([photo(0), photo(1)])[1]) == list(alone)


def test_an_evaluation_keeps_features_of_its_own_and_scores_as_the_method_does(tmp_path):
    prompted, data = with_prompts(tiny(), maple()), make_dataset(tmp_path / "photos", 2)
    captions = CaptionBase.build([f"A {label} in the sun." for label in data.labels.names], prompted)
    recipe = Recipe("ml-tta", {"views": 6, "select_ratio": 0.5})
    options = {"captions": captions, "out": tmp_path, "cache": tmp_path / "features"}
    options["execution"] = Execution(workers=0)
    done = evaluate(data, prompted, [recipe], **options)
    assert (done.counts.encoded, done.counts.cached) == (2, 0)
    again = evaluate(data, prompted, [recipe], fresh=True, **options)
    assert (again.counts.encoded, again.counts.cached) == (0, 2)
    plain = evaluate(data, tiny(), ["clip"], **options | {"captions": CaptionBase.build(["A dog."], tiny())})
    assert plain.counts.encoded == 2, "features under prompts are never taken for those without"
    method = create_method("ml-tta", prompted, data.labels, captions=captions, **recipe.options)
    pixels = render_views(load_image(data.images[0]), method.needs[0], prompted.preprocess)
    features = prompted.encode_images(pixels).half().float()[None]  # as the cache rounds them
    look = [lambda spec, preprocess, which: pixels[which]]
    want = torch.stack(list(method.branches(Encoded({method.needs[0]: features}, look)).values()), dim=1)
    torch.testing.assert_close(torch.tensor(done.results[0].branches()[:1]), want, atol=1e-3, rtol=0)


def test_models_that_maple_cannot_prompt_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"need a ViT image tower.*ModifiedResNet"):
        with_prompts(golden.backbone("rn"), maple(image_width=64, deeper=1))
    with pytest.raises(
        ConfigError, match="image prompts have width 96, but the image tower of tiny has width 128"
    ):
        with_prompts(tiny(), maple(image_width=96))
    with pytest.raises(ConfigError, match="vectors have width 32, but the text tower of tiny has width 64"):
        with_prompts(tiny(), maple(width=32))
    with pytest.raises(ConfigError, match="prompts for 5 blocks, but tiny has 4"):
        with_prompts(tiny(), maple(deeper=4))
    with pytest.raises(ConfigError, match="already uses MaPLe prompts"):
        with_prompts(with_prompts(tiny(), maple()), maple())
    with pytest.raises(ConfigError, match="cannot be combined with MaPLe's prompts"):
        create_method("dart", with_prompts(tiny(), maple()), LABELS)
    with pytest.raises(ConfigError, match="no single context"):
        create_method("clip", with_prompts(tiny(), maple()), LABELS, template="simple")


def test_a_checkpoint_that_is_not_whole_says_what_is_missing(tmp_path):
    for name, said in (
        ("proj.bias", r"proj\.bias should be \(128,\), found missing"),
        ("compound_prompts_text.0", r"compound_prompts_text\.0 should be \(2, 64\), found missing"),
        ("compound_prompt_projections.1.weight", r"\.1\.weight should be \(128, 64\), found missing"),
        ("proj.weight", r"prompt_learner\.proj\.weight is missing"),
        ("ctx", "no tensor named ctx"),
    ):
        state = maple_state()
        del state[f"prompt_learner.{name}"]
        torch.save({"state_dict": state}, tmp_path / "model.pth.tar-2")
        with pytest.raises(WeightsError, match=said):
            load_prompts(tmp_path / "model.pth.tar-2")
