"""ReTA against loops and whole covariances, written from its description."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F

from mltta import create_method
from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.reta import experts_of
from mltta.model.encoded import Encoded
from tests import golden_data as golden
from tests.methods.test_dpe import h, units

LABELS = ["dog", "cat", "boat", "person", "bus", "chair"]


def test_experts_are_means_of_ever_more_prompts_the_most_peculiar_first():
    prompts = units(4, 7, 8, seed=0)
    for c, own in enumerate(prompts):
        order = sorted(range(7), key=lambda i: sum(float(own[i] @ own[j]) for j in range(7) if j != i))
        for expert, end in zip(experts_of(prompts)[:, c], (2, 4, 7), strict=True):
            torch.testing.assert_close(expert, F.normalize(sum(own[i] for i in order[:end]), dim=-1))


def test_one_prompt_a_label_is_refused():
    with pytest.raises(ConfigError, match="several prompts per label"):
        create_method("reta", golden.backbone("vit"), LABELS, template="a photo of a {}.")


class ByHand:
    def __init__(self, experts: torch.Tensor, scale: float, gate: float):
        self.text, self.scale, self.gate = experts, scale, gate
        self.cache: dict[int, list] = {}
        self.updates = self.trusted = 0

    def gaussian(self, x, experts, y):
        """G with the covariance of every axis over all pairs of labels."""
        mu = experts.mean(0)
        apart = experts - mu
        covariance = torch.einsum("jcd,jkd->dck", apart, apart) / 4
        spread = torch.einsum("d,dck->ck", x**2, covariance)
        rows = []
        for c in range(len(mu)):
            quadratic = spread[y, y] + spread[c, c] - 2 * spread[y, c]
            rows.append(self.scale * x @ mu[c] + 0.5 * self.scale**2 * quadratic)
        return torch.stack(rows)

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        x, keep = views[0], len(views) // 10
        y = int((F.normalize(self.text[2], dim=-1) @ x).argmax())
        _, _, vh = torch.linalg.svd(self.text[2])
        basis = vh[: min(64, len(self.text[2]))]
        seen = [int((e @ (basis.T @ (basis @ x))).argmax()) for e in self.text]
        counts = Counter(seen)
        most = max(counts.values())
        w = math.log(3 / most * (1 if counts[y] == most else 2))
        self.trusted += w == 0
        doubt = float(h(self.scale * F.normalize(self.text[2], dim=-1) @ x)) * (1 + w)
        items = sorted([*self.cache.get(y, []), (doubt, x)], key=lambda item: item[0])
        self.cache[y] = items[:3]
        cached = sorted(self.cache)
        keys = {c: F.normalize(sum(f for _, f in self.cache[c]), dim=-1) for c in cached}

        def heard(v):
            out = torch.zeros(len(self.text[2]))
            for c in cached:
                out[c] = 6 * torch.exp(-5 * (1 - v @ keys[c]))
            return out

        residual = torch.zeros_like(self.text, requires_grad=True)
        moved = F.normalize(self.text + residual, dim=-1)
        loss = h(self.scale * moved[2] @ x + heard(x))
        for i, c in enumerate(cached):
            against = torch.stack([keys[c] @ moved[2, other] for other in cached]) / 0.01
            loss = loss + 0.5 * -against.log_softmax(0)[i] / len(cached)
        if w == 0:
            rows = [self.gaussian(v, moved, y) for v in views]
            rows.sort(key=lambda row: float(h(row.detach())))
            loss = loss + 0.05 * sum(-row.log_softmax(0)[y] for row in rows[:keep]) / keep
        loss.backward()
        torch.optim.AdamW([residual], lr=6e-4, eps=1e-3, weight_decay=0.1).step()
        with torch.no_grad():
            moved = F.normalize(self.text + residual, dim=-1)
            clean = self.scale * moved[2] @ x + heard(x)
            rows = [self.scale * moved.mean(0) @ v + heard(v) for v in views]
            rows.sort(key=lambda row: float(h(row)))
            if float(h(clean)) / math.log2(len(clean)) < self.gate:
                self.updates += 1
                n = self.updates
                self.text = self.text * n / (n + 1) + moved / (n + 1)
            return 0.5 * clean + 0.5 * sum(rows[:keep]) / keep


def test_a_stream_equals_loops_and_whole_covariances():
    method = create_method("reta", golden.backbone("vit", "soft"), LABELS, views=20, gate=0.3)
    views = units(30, 20, 32, seed=3)
    views = F.normalize(views + 0.8 * method.experts[2][torch.arange(30) % 6][:, None], dim=-1)
    twin, state = ByHand(method.experts, method.logit_scale, 0.3), method.start()
    images = Encoded({ViewSpec(count=20): views})
    for i in range(30):
        branches, state = method.step(state, images[i])
        torch.testing.assert_close(method.merge(branches)[0], twin(views[i]), atol=5e-4, rtol=0)
    assert 0 < twin.trusted < 30
    assert 0 < twin.updates < 30
