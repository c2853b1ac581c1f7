"""The released numbers behind the scores: gradients, second steps, and classifiers that our own text side makes."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mltta import Encoded, LabelSet, ViewSpec, create_method
from mltta.methods import tuning
from mltta.methods.base import Problem, Teacher
from mltta.methods.ml_tta import MLTTA, MLTTAConfig
from mltta.methods.rlcf import RLCF, RLCFConfig
from mltta.methods.tda import TDA
from mltta.methods.tpt import TPT, TPTConfig
from mltta.model.context_views import Views
from mltta.objectives import bind_labels, entropy, select_confident
from tests import golden_data as golden

TPT_CASES = [f"tpt/{a}_{c}_{t}" for a, c, t in product(("vit", "rn"), ("voc", "coco"), ("sharp", "soft"))]
TWO_STEPS = "ml_tta/vit_voc_sharp_cap16"
TDA_CASES = [
    f"tda/vit_{name}" for name in ("voc_imagenet", "voc_caltech101", "voc_eurosat", "coco_caltech101")
]
DMN_CASES = ["dmn/vit_voc_mem50", "dmn/vit_coco_mem50", "dmn/vit_voc_mem3"]


@pytest.fixture
def gradients(monkeypatch) -> list[Tensor]:
    """The gradients (B, M, W) of every step that contexts take."""
    seen: list[Tensor] = []
    adamw = tuning.adamw
    monkeypatch.setattr(tuning, "adamw", lambda ctx, g, *rest: seen.append(g) or adamw(ctx, g, *rest))
    return seen


def off(got: Tensor, want: Tensor) -> float:
    """How far apart, relative to the largest element."""
    return float((got - want).abs().max() / want.abs().max())


# ---------------------------------------------------------------- TPT


@pytest.mark.parametrize(("case", "steps"), list(product(TPT_CASES, (1, 2))))
def test_gradients_of_tpt_equal_the_released_code(case, steps, gradients):
    arch, _, temperature = case.removeprefix("tpt/").split("_")
    want, backbone = golden.tensors(case), golden.backbone(arch, temperature)
    method = TPT(
        Problem(backbone.encode_labels(golden.class_names(case)), backbone.logit_scale),
        TPTConfig(steps=steps),
    )
    views = backbone.encode_images(golden.inputs(f"views_{arch}")["views"])[None]
    method(Encoded({ViewSpec(count=64): views}))
    assert len(gradients) == steps
    recorded = want[f"steps{steps}/grad_ctx"]  # of the last step
    assert off(gradients[-1][0], recorded) < (3e-4 if steps == 1 else 1e-3)


# ---------------------------------------------------------------- two steps of ML-TTA


@pytest.mark.parametrize(("branch", "suffix", "lr"), [("view", "", 1e-2), ("caption", "_neg", 1e-3)])
def test_loss_gradient_and_selection_of_the_second_step_equal_the_released_code(
    branch, suffix, lr, gradients
):
    want, backbone = golden.tensors(TWO_STEPS), golden.backbone("vit")
    problem = Problem(
        backbone.encode_labels(golden.class_names(TWO_STEPS)),
        backbone.logit_scale,
        golden.captions("vit", "voc"),
    )
    method = MLTTA(problem, MLTTAConfig.make("released", augmix=False, steps=2))
    views = backbone.encode_images(golden.inputs("views_vit")["views"])[None]
    caption, valid = method.labels_from(branch, method.retrieve(views))  # (1, R)
    rows = views if branch == "view" else method.captions.embeddings[caption]
    k = method.captions.k(caption, "list")
    objective = method.loss(caption, valid)
    losses, chosen = [], []

    def loss(text, seen):
        value = objective(text, seen)
        losses.append(value.detach()[0])
        bound = bind_labels(method.logits(seen, text.detach()), k)
        chosen.append(select_confident(entropy(bound), 0.1, valid)[0].nonzero().flatten())
        return value

    tuning.tune_context(method.text, Views(rows), loss, lr=lr, steps=2)
    recorded = {
        name: want[f"bind1/marginal_2steps/{name}"]
        for name in (f"loss_{branch}", f"grad_ctx{suffix}", f"sel_{branch}_idx")
    }
    torch.testing.assert_close(losses[1], recorded[f"loss_{branch}"].reshape(()), atol=2e-5, rtol=0)
    assert off(gradients[1][0], recorded[f"grad_ctx{suffix}"]) < 1e-3
    ours = chosen[1] if branch == "view" else caption[0][chosen[1]]
    theirs = recorded[f"sel_{branch}_idx"].long()
    if branch == "caption":  # the recording numbers the distinct captions
        theirs = want["caption_idx_unique"][theirs].long()
    assert torch.equal(ours.sort().values, theirs.sort().values)
    # and the second step is not the first again
    assert abs(float(losses[0] - losses[1])) > 1e-4
    first = want[f"bind1/marginal/loss_{branch}"].reshape(())
    torch.testing.assert_close(losses[0], first, atol=2e-5, rtol=0)


# ---------------------------------------------------------------- RLCF where the CLIPScore is zero


def rlcf_by_hand(logits: Tensor, similarity: Tensor, k: int, clamp: bool = True) -> Tensor:
    """The loss of one image: in each view its k likely labels, rewarded by a CLIPScore that is never below zero."""
    terms = []
    for row, seen in zip(logits, similarity, strict=True):
        likely = sorted(range(len(row)), key=lambda c: -float(row.detach()[c]))[:k]
        scores = [2.5 * float(seen[c]) for c in likely]
        if clamp:
            scores = [max(score, 0.0) for score in scores]
        mean = sum(scores) / k
        terms += [-(score - mean) * row.log_softmax(0)[c] for c, score in zip(likely, scores, strict=True)]
    return torch.stack(terms).mean()


def judged_by(names: Tensor, views: Tensor) -> tuple[RLCF, Tensor]:
    """RLCF whose teacher is the student with other label features, and what it says of the views."""
    student = golden.backbone("vit", "soft")
    text = student.encode_labels(LabelSet.of(["cat", "dog", "boat", "lamp", "tree", "red bus", "child"]))
    method = RLCF(Problem(text, student.logit_scale, teacher=Teacher(names)), RLCFConfig())
    indices = torch.arange(views.shape[1]).expand(len(views), -1)
    return method, method.judge(Encoded({ViewSpec(count=views.shape[1]): views}), indices, views)


def test_labels_that_the_teacher_finds_unlike_the_view_are_rewarded_alike_as_a_naive_loop_does():
    generator = torch.Generator().manual_seed(1)
    views = F.normalize(torch.randn(5, 6, 32, generator=generator), dim=-1)
    names = F.normalize(torch.randn(7, 32, generator=generator), dim=-1)
    method, judged = judged_by(names, views)
    similarity = views @ names.T
    assert torch.equal(judged == 0, similarity <= 0)
    text = method.text.features.expand(5, -1, -1).clone().requires_grad_()
    loss = method.loss(judged)(text, views)
    (gradient,) = torch.autograd.grad(loss.sum(), text)
    for i in range(5):
        own = method.text.features.clone().requires_grad_()
        logits = method.logit_scale * views[i] @ own.T
        naive = rlcf_by_hand(logits, similarity[i], 3)
        torch.testing.assert_close(loss[i], naive, atol=1e-5, rtol=1e-5)
        (by_hand,) = torch.autograd.grad(naive, own)
        assert off(gradient[i], by_hand) < 1e-4
        free = rlcf_by_hand(logits.detach(), similarity[i], 3, clamp=False)
        assert abs(float(free - naive.detach())) > 5e-4  # without the clamp it is another loss


def test_where_every_score_is_zero_nothing_is_learned():
    views = golden.stream(1)[:3].expand(-1, 20, -1)
    names = -F.normalize(views[0, 0], dim=-1).expand(7, -1)
    method, judged = judged_by(names, views[:1])
    assert (judged == 0).all()
    settings = RLCFConfig(views=20, weight_decay=0.0)
    still = RLCF(method.problem, settings)
    clip = method.logits(views[:1, :1], method.text.features)[:, 0]
    torch.testing.assert_close(still(Encoded({ViewSpec(count=20): views[:1]})), clip, atol=1e-4, rtol=0)


# ---------------------------------------------------------------- classifiers of our own text side


@pytest.mark.parametrize("case", TDA_CASES)
def test_tda_with_our_classifier_equals_the_released_code(case):
    want, said = golden.tensors(case), golden.manifest(case)
    positive = said["hyper_parameters"]["positive"]
    method = create_method(
        "tda",
        golden.backbone("vit"),
        golden.class_names(case),
        template=said["templates"],
        positive_alpha=positive["alpha"],
        positive_beta=positive["beta"],
    )
    assert isinstance(method, TDA)
    torch.testing.assert_close(method.text.features, want["clip_weights"].T, atol=2e-6, rtol=0)
    scores = method(Encoded({ViewSpec(count=1): golden.stream(1)}))
    torch.testing.assert_close(scores, want["final_logits"], atol=2e-4, rtol=0)


@pytest.mark.parametrize("case", DMN_CASES)
def test_dmn_with_our_classifier_equals_the_released_code(case):
    want, said = golden.tensors(case), golden.manifest(case)
    method = create_method(
        "dmn",
        golden.backbone("vit"),
        golden.class_names(case),
        template=said["templates"],
        preset="released",
        augmix=False,
        memory=said["hyper_parameters"]["memory_size"],
    )
    torch.testing.assert_close(method.text.features, want["text_feat"], atol=2e-6, rtol=0)
    branches = method.branches(Encoded({ViewSpec(count=32): golden.stream(32)}))
    torch.testing.assert_close(branches["text"], want["text_prob_view0"], atol=2e-5, rtol=0)
    torch.testing.assert_close(branches["memory"], want["memory_prob"], atol=2e-5, rtol=0)
    torch.testing.assert_close(method.merge(branches), want["sum_prob"], atol=4e-5, rtol=0)
