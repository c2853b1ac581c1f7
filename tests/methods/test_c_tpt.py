"""C-TPT against autograd through the whole text tower, and what its dispersion does."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from mltta import create_method
from mltta.images.specs import ViewSpec
from mltta.model.encoded import Encoded
from tests import golden_data as golden

LABELS = ["dog", "cat", "boat", "person", "bus"]


def views(seed: int = 0) -> Encoded:
    rows = torch.randn(2, 64, 32, generator=torch.Generator().manual_seed(seed))
    return Encoded({ViewSpec(count=64): F.normalize(rows, dim=-1)})


def test_one_step_is_adamw_on_entropy_less_dispersion():
    method = create_method("c-tpt", golden.backbone("vit"), LABELS)
    found, given = method(views()), views().features(ViewSpec(count=64))
    for rows, got in zip(given, found, strict=True):
        context = method.text.context.clone().requires_grad_()
        text = method.text.plain(context[None])[0]
        logits = method.logit_scale * rows @ text.T
        p = logits.softmax(-1)
        sure = (-(p * p.log()).sum(-1)).argsort()[:6]
        mean = p[sure].mean(0)
        middle = text.mean(0)
        apart = sum((one - middle).norm() for one in text) / len(text)
        loss = -(mean * mean.log()).sum() - 50 * apart
        loss.backward()
        torch.optim.AdamW([context], lr=5e-3, weight_decay=0.01).step()
        scores = method.logit_scale * rows[0] @ method.text(context.detach()[None])[0].T
        torch.testing.assert_close(got, scores, atol=1e-3, rtol=0)


def test_without_dispersion_it_is_tpt_and_with_it_labels_move_apart():
    backbone = golden.backbone("vit")
    plain = create_method("tpt", backbone, LABELS)(views())
    assert torch.equal(create_method("c-tpt", backbone, LABELS, dispersion=0.0)(views()), plain)
    assert not torch.allclose(create_method("c-tpt", backbone, LABELS)(views()), plain, atol=1e-3)
