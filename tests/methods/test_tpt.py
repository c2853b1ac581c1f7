"""TPT against the numbers of its released code."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from mltta.encode import Encoded
from mltta.methods.base import Problem
from mltta.methods.tpt import TPT, TPTConfig
from mltta.methods.tuning import tune_context
from mltta.objectives import bound_entropy, entropy, select_confident
from mltta.views import ViewSpec
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

    def loss(text):
        value = bound_entropy(method.logits(views, text), None, reduction="marginal", rows=rows)
        losses.append(value.item())
        return value

    for steps, ctx_tol, logit_tol in ((1, 5e-7, 2e-4), (2, 2e-5, 1e-3)):
        losses.clear()
        context = tune_context(method.text, loss, 1, lr=5e-3, steps=steps)[0]
        torch.testing.assert_close(context, want[f"steps{steps}/ctx_after"], atol=ctx_tol, rtol=0)
        torch.testing.assert_close(torch.tensor(losses), want[f"steps{steps}/loss"], atol=2e-5, rtol=0)
        scores = TPT(problem, TPTConfig(steps=steps))(Encoded({ViewSpec(count=64): views}))
        torch.testing.assert_close(scores, want[f"steps{steps}/final_logits"], atol=logit_tol, rtol=0)
