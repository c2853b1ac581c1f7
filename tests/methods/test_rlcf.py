"""RLCF against the numbers of its released code, and against a loop written from its description."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical

from mltta import LabelSet, create_method
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess
from mltta.methods import tuning
from mltta.methods.base import Problem, Teacher
from mltta.methods.rlcf import RLCF, RLCFConfig
from mltta.methods.tuning import tune_context
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from tests import golden_data as golden

CASES = [f"rlcf/{a}_{c}_{t}" for a, c, t in product(("vit", "rn"), ("voc", "coco"), ("sharp", "soft"))]
PROFILES = {"script_rlcf_prompt": {}, "argparse_defaults": {"sample_k": 5, "steps": 1, "lr": 5e-3}}


def recorded(case: str, **options) -> tuple[RLCF, Encoded]:
    """The method of a recording with its teacher, and the views; the teacher sees them enlarged, as recorded."""
    arch, _, temperature = case.removeprefix("rlcf/").split("_")
    student, judge = golden.backbone(arch, temperature), golden.backbone("reward")
    labels, pixels = golden.class_names(case), golden.inputs(f"views_{arch}")["views"]

    def look(spec, preprocess, views):
        return F.interpolate(pixels[views], size=preprocess.size, mode="bicubic", align_corners=True)

    teacher = Teacher(judge.encode_labels(labels).features, judge)
    problem = Problem(student.encode_labels(labels), student.logit_scale, teacher=teacher)
    views = student.encode_images(pixels)[None]
    return RLCF(problem, RLCFConfig(**options)), Encoded({ViewSpec(count=64): views}, [look])


@pytest.mark.parametrize("case", CASES)
def test_selection_and_teacher_equal_the_released_code(case):
    want = golden.tensors(case)
    method, encoded = recorded(case)
    views = encoded.features(method.needs[0])
    chosen = method.choose(views)
    order = want["sel_view_idx"].argsort()  # the recording lists them by entropy
    assert torch.equal(chosen[0].int(), want["sel_view_idx"][order])
    teacher = method.problem.teacher
    torch.testing.assert_close(teacher.text, want["reward_class_features"], atol=2e-6, rtol=0)
    judged = method.judge(encoded, chosen, views[:, chosen[0]])
    scores = 2.5 * want["reward_image_features"][order] @ want["reward_class_features"].T
    torch.testing.assert_close(judged[0], scores.clamp(min=0), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("case", "profile"), list(product(CASES, PROFILES)))
def test_likely_labels_losses_context_and_scores_equal_the_released_code(case, profile, monkeypatch):
    want = {k.split("/")[1]: v for k, v in golden.tensors(case).items() if k.startswith(profile)}
    method, encoded = recorded(case, **PROFILES[profile])
    c, views = method.config, encoded.features(method.needs[0])
    chosen = method.choose(views)
    order = golden.tensors(case)["sel_view_idx"].argsort()
    judged = method.judge(encoded, chosen, views[:, chosen[0]])
    objective = method.loss(judged)
    losses, gradients = [], []

    def loss(text, kept):
        step = len(losses)
        likely = method.logits(kept, text.detach())[0].topk(c.sample_k).indices
        assert torch.equal(likely.int(), want["topk_idx"][step][order])
        score = judged[0].gather(-1, likely)
        recorded_score = want["clip_score"][step].view(6, -1)[order]
        torch.testing.assert_close(score, recorded_score, atol=1e-5, rtol=0)
        value = objective(text, kept)
        losses.append(value.item())
        return value

    adamw = tuning.adamw
    monkeypatch.setattr(tuning, "adamw", lambda ctx, g, *rest: gradients.append(g) or adamw(ctx, g, *rest))
    kept = Views(views[:, chosen[0]])
    context = tune_context(method.text, kept, loss, lr=c.lr, weight_decay=c.weight_decay, steps=c.steps)[0]
    one = c.steps == 1
    torch.testing.assert_close(torch.tensor(losses), want["loss"], atol=2e-5, rtol=0)
    off = (gradients[-1][0] - want["grad_ctx"]).abs().max() / want["grad_ctx"].abs().max()
    assert off < (3e-4 if one else 1e-3)
    torch.testing.assert_close(context, want["ctx_after"], atol=5e-7 if one else 2e-5, rtol=0)
    torch.testing.assert_close(method(encoded), want["final_logits"], atol=2e-4 if one else 1e-3, rtol=0)


def by_hand(text, scale: float, views, sight, names, *, k=3, steps=3, lr=7e-3):
    """One image as the description says it: select, then in each step reward each view's likely labels."""
    logits = [scale * view @ text.features.T for view in views]
    unsure = [float(Categorical(logits=row).entropy()) for row in logits]
    kept = sorted(range(len(views)), key=lambda j: unsure[j])[: int(len(views) * 0.1)]
    context = torch.nn.Parameter(text.context.clone())
    optimizer = torch.optim.AdamW([context], lr=lr, weight_decay=5e-4)
    for _ in range(steps):
        features, terms = text.plain(context[None])[0], []
        for j in kept:
            row = scale * views[j] @ features.T
            likely = sorted(range(len(row)), key=lambda c: -row.detach()[c])[:k]
            scores = [max(0.0, 2.5 * float(sight[j] @ names[c])) for c in likely]
            for label, score in zip(likely, scores, strict=True):
                surprise = F.cross_entropy(row, torch.tensor(label))
                terms.append((score - sum(scores) / k) * surprise)
        optimizer.zero_grad()
        (sum(terms) / len(terms)).backward()
        optimizer.step()
    return (scale * views[0] @ text.plain(context[None])[0].T).detach()


def test_scores_equal_a_loop_over_images_steps_views_and_labels():
    generator = torch.Generator().manual_seed(0)
    student = golden.backbone("vit", "soft")
    text = student.encode_labels(LabelSet.of(["cat", "dog", "boat", "lamp", "tree", "red bus", "child"]))
    views, sight = (F.normalize(torch.randn(60, 20, d, generator=generator), dim=-1) for d in (32, 24))
    names = F.normalize(torch.randn(7, 24, generator=generator), dim=-1)

    class Judge:  # a teacher whose picture of view j of image i is sight[i, j]
        device, preprocess = torch.device("cpu"), Preprocess()
        encode_images = staticmethod(lambda pixels: sight[pixels[:, 0].long(), pixels[:, 1].long()])

    looks = [lambda spec, preprocess, own, i=i: torch.tensor([[i, j] for j in own]) for i in range(60)]
    problem = Problem(text, student.logit_scale, teacher=Teacher(names, Judge()))
    method = RLCF(problem, RLCFConfig(views=20))
    got = method(Encoded({ViewSpec(count=20): views}, looks))  # sixty images at once
    want = [by_hand(text, student.logit_scale, *one, names) for one in zip(views, sight, strict=True)]
    torch.testing.assert_close(got, torch.stack(want), atol=2e-3, rtol=0)


def test_the_student_can_be_its_own_teacher():
    method, encoded = recorded(CASES[0])
    student = golden.backbone("vit")
    views, text = encoded.features(method.needs[0]), method.text.features
    itself = RLCF(Problem(method.text, student.logit_scale, teacher=Teacher(text)), RLCFConfig())
    chosen = itself.choose(views)
    judged = itself.judge(Encoded({ViewSpec(count=64): views}), chosen, views[:, chosen[0]])
    torch.testing.assert_close(judged[0], (2.5 * views[0, chosen[0]] @ text.T).clamp(min=0))
    other = RLCF(Problem(method.text, student.logit_scale, teacher=Teacher(text, student)), RLCFConfig())
    pixels = golden.inputs("views_vit")["views"]
    again = Encoded({ViewSpec(count=64): views}, [lambda spec, preprocess, own: pixels[own]])
    torch.testing.assert_close(other(again), itself(again), atol=1e-3, rtol=0)


def test_a_label_that_the_teacher_likes_rises_and_the_one_it_dislikes_falls():
    method, encoded = recorded(CASES[0], sample_k=2, steps=1, select_ratio=0.02)
    views = encoded.features(method.needs[0])
    kept = views[:, method.choose(views)[0]]
    liked, disliked = method.logits(kept, method.text.features)[0, 0].topk(2).indices.flip(0).tolist()
    judged = torch.zeros(1, 1, 20)
    judged[..., liked] = 1.0
    context = tune_context(method.text, Views(kept), method.loss(judged), lr=1e-3)
    before = method.logits(kept, method.text.features)[0, 0]
    after = method.logits(kept, method.text(context))[0, 0]
    assert (after - before)[liked] > (after - before)[disliked]


def test_with_one_label_there_is_nothing_to_prefer_and_the_context_only_decays():
    student = golden.backbone("vit")
    method = create_method("rlcf", student, ["dog"], teacher="self", weight_decay=0.0)
    views = Encoded({ViewSpec(count=64): golden.stream(1).expand(-1, 64, -1)[:2]})
    clip = method.logits(golden.stream(1)[:2], method.text.features)[:, 0]
    torch.testing.assert_close(method(views), clip, atol=1e-4, rtol=0)


def test_it_says_that_it_needs_a_teacher_and_images():
    method, encoded = recorded(CASES[0])
    with pytest.raises(ConfigError, match="needs a teacher"):
        RLCF(Problem(method.text, 100.0), RLCFConfig())
    features = Encoded({ViewSpec(count=64): encoded.features(ViewSpec(count=64))})
    with pytest.raises(ConfigError, match="only their features"):
        method(features)


@pytest.mark.parametrize("bad", [{"sample_k": 0}, {"steps": -1}, {"select_ratio": 1.5}, {"views": 0}])
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        RLCFConfig.make(**bad)
