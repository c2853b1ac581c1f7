"""TPT against the numbers of its released code; with bound entropy, against a loop."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from mltta import LabelSet, create_method
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.tpt import TPT, TPTConfig
from mltta.methods.tuning import tune_context
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from mltta.objectives import bound_entropy, entropy, select_confident
from tests import golden_data as golden

CASES = [f"tpt/{a}_{c}_{t}" for a, c, t in product(("vit", "rn"), ("voc", "coco"), ("sharp", "soft"))]


@pytest.mark.parametrize("case", CASES)
def test_tpt_equals_its_released_code(case):
    arch, _, temperature = case.removeprefix("tpt/").split("_")
    want, backbone = golden.tensors(case), golden.backbone(arch, temperature)
    problem = Problem(backbone.encode_labels(golden.class_names(case)), backbone.logit_scale)
    views = backbone.encode_images(golden.inputs(f"views_{arch}")["views"])[None]
    torch.testing.assert_close(views[0], want["image_features"], atol=2e-6, rtol=0)
    method = TPT(problem, TPTConfig())
    torch.testing.assert_close(method.text.features, want["text_features_init"], atol=2e-6, rtol=0)
    logits = method.logits(views, method.text.features)
    torch.testing.assert_close(logits[0], want["view_logits"], atol=2e-4, rtol=0)
    rows = select_confident(entropy(logits), 0.1)
    assert torch.equal(rows[0].nonzero().flatten().int(), want["sel_view_idx"].sort().values)

    losses = []

    def loss(text, seen):
        value = bound_entropy(method.logits(seen, text), None, reduction="marginal", rows=rows)
        losses.append(value.item())
        return value

    for steps, ctx_tol, logit_tol in ((1, 5e-7, 2e-4), (2, 2e-5, 1e-3)):
        losses.clear()
        context = tune_context(method.text, Views(views), loss, lr=5e-3, steps=steps)[0]
        torch.testing.assert_close(context, want[f"steps{steps}/ctx_after"], atol=ctx_tol, rtol=0)
        torch.testing.assert_close(torch.tensor(losses), want[f"steps{steps}/loss"], atol=2e-5, rtol=0)
        scores = TPT(problem, TPTConfig(steps=steps))(Encoded({ViewSpec(count=64): views}))
        torch.testing.assert_close(scores, want[f"steps{steps}/final_logits"], atol=logit_tol, rtol=0)


MENTIONS = [[0], [1, 2], [], [3, 4, 0], [2, 2], [4, 1, 2, 3], [1, 0]]


def bound_by_hand(text, scale: float, views, captions, steps: int):
    """TPT on one image, with the top labels of each view tied as its nearest caption says."""
    named = [j for j, labels in enumerate(MENTIONS) if labels]
    k = [len(set(MENTIONS[max(named, key=lambda j: view @ captions[j])])) for view in views]

    def bind(row: torch.Tensor, k: int) -> torch.Tensor:
        top = sorted(range(len(row)), key=lambda c: -row[c].item())[:k]
        return torch.stack([v + (row.max() - v).detach() * (c in top) for c, v in enumerate(row)])

    rows = [bind(scale * view @ text.features.T, k[j]) for j, view in enumerate(views)]
    unsure = [-float((row.softmax(0) * row.log_softmax(0)).sum()) for row in rows]
    kept = sorted(range(len(views)), key=lambda j: unsure[j])[: len(views) // 10]
    context = torch.nn.Parameter(text.context.clone())
    optimizer = torch.optim.AdamW([context], lr=5e-3)
    for _ in range(steps):
        features = text.plain(context[None])[0]
        p = sum(bind(scale * views[j] @ features.T, k[j]).softmax(0) for j in kept) / len(kept)
        optimizer.zero_grad()
        (-(p * p.log()).sum()).backward()
        optimizer.step()
    return k, (scale * views[0] @ text.plain(context[None])[0].T).detach()


@pytest.mark.parametrize("steps", [1, 3])
def test_with_binding_it_equals_a_loop_over_images_views_and_labels(steps):
    backbone = golden.backbone("vit", "soft")
    text = backbone.encode_labels(LabelSet.of(["cat", "dog", "boat", "red bus", "child"]))
    generator = torch.Generator().manual_seed(0)
    views, embeddings = (
        F.normalize(torch.randn(*size, 32, generator=generator), dim=-1) for size in ((12, 40), (7,))
    )
    captions = LabelledCaptions(embeddings, MENTIONS, 5)
    problem, images = Problem(text, backbone.logit_scale, captions), Encoded({ViewSpec(count=40): views})
    got = TPT(problem, TPTConfig(views=40, steps=steps, bind=True))(images)
    counts = set()
    for i in range(12):
        k, scores = bound_by_hand(text, backbone.logit_scale, views[i], embeddings, steps)
        counts |= set(k)
        torch.testing.assert_close(got[i], scores, atol=2e-3, rtol=0)
    assert counts == {1, 2, 3, 4}
    plain = TPT(problem, TPTConfig(views=40, steps=steps))(images)  # captions at hand are not looked at
    assert (got - plain).abs().max() > 0.1
    assert torch.equal(
        plain, TPT(Problem(text, backbone.logit_scale), TPTConfig(views=40, steps=steps))(images)
    )


def test_captions_are_asked_for_only_when_labels_are_bound():
    backbone = golden.backbone("vit")
    assert create_method("tpt", backbone, ["cat", "dog"]).problem.captions is None
    assert create_method("tpt", backbone, ["cat", "dog"], bind=True).problem.captions is not None
    with pytest.raises(ConfigError, match="tpt needs captions"):
        TPT(Problem(backbone.encode_labels(LabelSet.of(["cat"])), 100.0), TPTConfig(bind=True))
