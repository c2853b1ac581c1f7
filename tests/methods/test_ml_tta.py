"""ML-TTA against the numbers of the authors' released code, and what the switches do."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest
import torch

from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.ml_tta import MLTTA, MLTTAConfig
from mltta.methods.tuning import tune_context
from mltta.metrics import mean_average_precision
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from mltta.objectives import bind_labels, entropy, select_confident
from tests import golden_data as golden

CASES = [
    f"ml_tta/{arch}_{classes}_{temperature}_cap{n}"
    for arch, classes, temperature, n in product(("vit", "rn"), ("voc", "coco"), ("sharp", "soft"), (16, 1))
]


def released(case: str, accelerate: bool | None = None, **options) -> tuple[MLTTA, torch.Tensor]:
    """The method as released on a recorded case, and the features (1, N, D) of its views."""
    arch, classes, temperature, n = case.removeprefix("ml_tta/").split("_")
    backbone = golden.backbone(arch, temperature, accelerate)
    problem = Problem(
        backbone.encode_labels(golden.class_names(case)), backbone.logit_scale, golden.captions(arch, classes)
    )
    views = backbone.encode_images(golden.inputs(f"views_{arch}")["views"])[None]
    config = MLTTAConfig.make(
        "released", augmix=False, captions_per_view=int(n.removeprefix("cap")), **options
    )
    return MLTTA(problem, config), views


def tuned_on(
    method: MLTTA, branch: str, views: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The rows (B, R, D) that a prompt is tuned on, the caption whose labels each has, and which rows exist."""
    caption, valid = method.labels_from(branch, method.retrieve(views))
    return views if branch == "view" else method.captions.embeddings[caption], caption, valid


@pytest.mark.parametrize("case", CASES)
def test_features_tokens_and_retrieval_equal_the_released_code(case):
    want = golden.tensors(case)
    method, views = released(case)
    torch.testing.assert_close(views[0], want["image_features"], atol=2e-6, rtol=0)
    torch.testing.assert_close(method.text.features, want["text_features_view_init"], atol=2e-6, rtol=0)
    torch.testing.assert_close(method.text.context, want["ctx_init"], atol=0, rtol=0)
    assert torch.equal(method.text._prompts.tokens.int(), want["tokenized_prompts"])
    found = method.captions.nearest(views, method.config.captions_per_view)[0]
    assert torch.equal(found[:, 0].int(), want["retrieved_idx"][:, 0])
    assert torch.equal(found.sort(-1).values.int(), want["retrieved_idx"].sort(-1).values)
    caption, valid = method.labels_from("caption", method.retrieve(views))
    assert torch.equal(caption[valid].sort().values.int(), want["caption_idx_unique"])


@pytest.mark.parametrize("case", CASES)
def test_logits_binding_k_and_selection_equal_the_released_code(case):
    want = golden.tensors(case)
    method, views = released(case)
    for branch in ("view", "caption"):
        rows, caption, valid = tuned_on(method, branch, views)
        if valid is not None:  # the recording lists distinct captions by index
            order = caption[valid].argsort()
            rows, caption = rows[valid][order][None], caption[valid][order][None]
        logits, k = method.logits(rows, method.text.features), method.captions.k(caption, "list")
        assert torch.equal(k[0].int(), want[f"k_{branch}"])
        torch.testing.assert_close(logits[0], want[f"{branch}_logits_raw"], atol=2e-4, rtol=0)
        bound = bind_labels(logits, k)
        torch.testing.assert_close(bound[0], want[f"{branch}_logits_bound"], atol=2e-4, rtol=0)
        for bind, scored in ((0, logits), (1, bound)):
            row_entropy = entropy(scored)
            torch.testing.assert_close(
                row_entropy[0], want[f"bind{bind}/{branch}_entropy"], atol=2e-4, rtol=0
            )
            chosen = select_confident(row_entropy, 0.1)[0].nonzero().flatten().int()
            assert torch.equal(chosen, want[f"bind{bind}/sel_{branch}_idx"].sort().values)


@pytest.mark.parametrize(("case", "bind", "objective"), list(product(CASES, (0, 1), ("marginal", "mean"))))
def test_loss_gradient_context_and_scores_equal_the_released_code(case, bind, objective):
    want = {
        k.split("/", 2)[2]: v
        for k, v in golden.tensors(case).items()
        if k.startswith(f"bind{bind}/{objective}/")
    }
    method, views = released(case, bind=bool(bind), objective=objective)
    for branch, suffix, lr in (("view", "", 1e-2), ("caption", "_neg", 1e-3)):
        rows, *labels = tuned_on(method, branch, views)
        loss = method.loss(*labels)
        features, pull_back = method.text.initial()
        leaf = features.clone().requires_grad_()
        value = loss(leaf, rows)
        torch.testing.assert_close(value[0].detach(), want[f"loss_{branch}"].reshape(()), atol=2e-5, rtol=0)
        gradient = pull_back(torch.autograd.grad(value.sum(), leaf)[0])[0]
        reference = want[f"grad_ctx{suffix}"]
        assert (gradient - reference).abs().max() < 3e-4 * reference.abs().max()
        context = tune_context(method.text, Views(rows), loss, lr=lr)[0]
        torch.testing.assert_close(context, want[f"ctx{suffix}_after"], atol=5e-7, rtol=0)
    scores = method.branches(Encoded({ViewSpec(count=64): views}))
    for branch in ("view", "caption"):
        torch.testing.assert_close(scores[branch], want[f"final_logits_{branch}"], atol=2e-4, rtol=0)


TWO_STEPS = [case for case in CASES if "bind1/marginal_2steps/ctx_after" in golden.tensors(case)]


def test_a_two_step_recording_exists():
    assert TWO_STEPS


@pytest.mark.parametrize("case", TWO_STEPS)
def test_two_steps_select_again_and_equal_the_released_code(case):
    want = golden.tensors(case)
    method, views = released(case, steps=2)
    for branch, suffix, lr in (("view", "", 1e-2), ("caption", "_neg", 1e-3)):
        rows, *labels = tuned_on(method, branch, views)
        context = tune_context(method.text, Views(rows), method.loss(*labels), lr=lr, steps=2)[0]
        torch.testing.assert_close(
            context, want[f"bind1/marginal_2steps/ctx{suffix}_after"], atol=2e-5, rtol=0
        )
    scores = method.branches(Encoded({ViewSpec(count=64): views}))
    for branch in ("view", "caption"):
        torch.testing.assert_close(
            scores[branch], want[f"bind1/marginal_2steps/final_logits_{branch}"], atol=1e-3, rtol=0
        )


@pytest.mark.parametrize("bind", [0, 1])
def test_evaluation_stream_equals_the_released_code_to_the_map(bind):
    case = "ml_tta/stream_vit_voc_sharp"
    want = golden.tensors(case)
    backbone, stream = golden.backbone("vit"), golden.inputs("stream_vit")
    noise = torch.cat([torch.zeros_like(stream["noise"][:1]), 0.5 * stream["noise"]])
    views = torch.stack([backbone.encode_images(image + noise) for image in stream["images"][:8]])
    problem = Problem(
        backbone.encode_labels(golden.class_names(case)), backbone.logit_scale, golden.captions("vit", "voc")
    )
    method = MLTTA(problem, MLTTAConfig.make("released", augmix=False, views=32, bind=bool(bind)))
    encoded = Encoded({ViewSpec(count=32): views})
    branches = method.branches(encoded)  # eight images adapted at once
    target = want["target"].numpy()
    for name in ("view", "caption"):
        torch.testing.assert_close(branches[name], want[f"bind{bind}/pred_{name}"], atol=2e-4, rtol=0)
        got = mean_average_precision(branches[name], target, ties="released")
        assert got == pytest.approx(want[f"bind{bind}/mAP_{name}"].item(), abs=1e-6)
    merged = method.merge(branches)
    torch.testing.assert_close(merged, want[f"bind{bind}/pred_merged"], atol=2e-5, rtol=0)
    got = mean_average_precision(merged, target, ties="released")
    assert got == pytest.approx(want[f"bind{bind}/mAP_merged"].item(), abs=1e-6)
    one_by_one = torch.cat(
        [method.branches(Encoded({ViewSpec(count=32): views[i : i + 1]}))["view"] for i in range(8)]
    )
    torch.testing.assert_close(one_by_one, branches["view"], atol=1e-4, rtol=0)


def test_where_the_released_loss_is_nan_the_most_confident_caption_is_kept():
    case = "ml_tta/degenerate_vit_voc_sharp_cap1"
    want = golden.tensors(case)
    assert want["loss_caption"].isnan()
    backbone = golden.backbone("vit")
    problem = Problem(
        backbone.encode_labels(golden.class_names(case)), backbone.logit_scale, golden.captions("vit", "voc")
    )
    method = MLTTA(problem, MLTTAConfig.make("released", augmix=False, views=12, captions_per_view=1))
    views = backbone.encode_images(golden.inputs("views_vit")["views"][:12])[None]
    rows, caption, valid = tuned_on(method, "caption", views)
    assert int(valid.sum()) == len(want["caption_idx_unique"]) < 10
    loss = method.loss(caption, valid)
    assert loss(method.text.features[None], rows).isfinite().all()
    context = tune_context(method.text, Views(rows), loss, lr=1e-3)[0]
    moved = (context - method.text.context).abs()
    assert moved.min() > 0.9e-3  # every coordinate took its step; the released code only decays
    scores = method.branches(Encoded({ViewSpec(count=12): views}))
    torch.testing.assert_close(scores["view"], want["final_logits_view"], atol=2e-4, rtol=0)
    assert scores["caption"].isfinite().all()


def test_the_default_scores_are_the_sum_of_the_two_prompts():
    method, views = released(CASES[0], merge="sum")
    encoded = Encoded({ViewSpec(count=64): views})
    branches = method.branches(encoded)
    assert torch.equal(method(encoded), branches["view"] + branches["caption"])


@pytest.mark.parametrize("branch", ["view", "caption"])
def test_a_prompt_switched_off_leaves_the_other_as_it_was(branch):
    both, views = released(CASES[0])
    encoded = Encoded({ViewSpec(count=64): views})
    off = {"view": "caption_prompt", "caption": "view_prompt"}[branch]
    alone, _ = released(CASES[0], **{off: False})
    result = alone.branches(encoded)
    assert list(result) == [branch]
    torch.testing.assert_close(result[branch], both.branches(encoded)[branch], atol=2e-5, rtol=0)


def test_zero_steps_is_zero_shot_clip():
    method, views = released(CASES[0], steps=0)
    scores = method.branches(Encoded({ViewSpec(count=64): views}))
    clip = method.logits(views[:, :1], method.text.features)[:, 0]
    torch.testing.assert_close(scores["view"], clip, atol=2e-5, rtol=0)


def test_paired_captions_weigh_a_caption_by_how_often_it_was_retrieved():
    method, views = released(CASES[0], caption_pool="paired", objective="mean", select_ratio=1.0, bind=False)
    rows, caption, valid = tuned_on(method, "caption", views)
    assert valid is None
    assert rows.shape[1] == 64 * 16
    ids, counts = caption[0].unique(return_counts=True)
    each = entropy(method.logits(method.captions.embeddings[ids], method.text.features))
    want = (each * counts).sum() / counts.sum()
    got = method.loss(caption, valid)(method.text.features[None], rows)[0]
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-5)


def test_bce_pulls_the_labels_of_the_caption_up_and_the_rest_down():
    method, views = released(CASES[0], objective="bce", caption_pool="paired")
    rows, caption, valid = tuned_on(method, "caption", views)
    scores = method.logits(rows, method.text.features).requires_grad_()
    hot = method.captions.multi_hot(caption)
    assert torch.equal(hot.sum(-1).long(), method.captions.k(caption))
    from mltta.objectives import label_set_bce

    chosen = select_confident(entropy(scores), 0.1)
    (gradient,) = torch.autograd.grad(label_set_bce(scores, hot, chosen).sum(), scores)
    assert (gradient[chosen][hot[chosen] == 1] <= 0).all()
    assert (gradient[chosen][hot[chosen] == 0] >= 0).all()
    assert (gradient[~chosen] == 0).all()
    assert method.loss(caption, valid)(method.text.features[None], rows).isfinite().all()


def test_label_order_does_not_matter():
    backbone, captions = golden.backbone("vit"), golden.captions("vit", "voc")
    names = list(golden.class_names(CASES[0]).names)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    views = Encoded({ViewSpec(count=64): backbone.encode_images(golden.inputs("views_vit")["views"])[None]})
    config = MLTTAConfig()
    plain = MLTTA(
        Problem(backbone.encode_labels(golden.class_names(CASES[0])), backbone.logit_scale, captions), config
    )
    from mltta.labels import LabelSet

    mixed = LabelSet.of([names[i] for i in order])
    shuffled = MLTTA(Problem(backbone.encode_labels(mixed), backbone.logit_scale, captions), config)
    torch.testing.assert_close(shuffled(views), plain(views)[:, order], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "bad",
    [
        {"views": 0},
        {"select_ratio": 0.0},
        {"objective": "mse"},
        {"steps": -1},
        {"captions_per_view": 0},
        {"view_prompt": False, "caption_prompt": False},
        {"banana": 1},
        {"bind": "false"},
        {"views": "16"},
        {"views": True},
        {"lr_view": "x"},
    ],
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad)).replace("view_prompt", "view prompt")):
        MLTTAConfig.make(**bad)


def test_released_preset_names_every_difference_from_the_paper():
    paper, other = (
        dataclasses.asdict(MLTTAConfig.make("paper")),
        dataclasses.asdict(MLTTAConfig.make("released")),
    )
    differs = {key: (paper[key], other[key]) for key in paper if paper[key] != other[key]}
    assert differs == {
        "augmix": (False, True),
        "objective": ("mean", "marginal"),
        "caption_pool": ("paired", "unique"),
        "label_count": ("set", "list"),
        "merge": ("sum", "minmax"),
    }
