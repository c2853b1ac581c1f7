"""The causal PIAA against lists of locations and a pseudo-inverse, written from its description."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from mltta.methods.base import Problem
from mltta.methods.piaa import PIAA, PIAAConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden
from tests.methods.test_dpe import h, units


class ByHand:
    """A list of sure locations a label; Gaussians of one covariance, fitted, given out anew, fitted again."""

    def __init__(self, text: torch.Tensor, config: PIAAConfig):
        self.text, self.c = text, config
        self.bank: list[list] = [[] for _ in text]
        self.seen = 0
        self.w, self.b = text.double().numpy(), np.full(len(text), -math.log(len(text)) - 0.5)

    def gaussians(self, items):
        """items: location, share, label."""
        text = self.text.double().numpy()
        mu = []
        for c in range(len(text)):
            own = [(f, p) for f, p, label in items if label == c]
            mu.append(sum(p * f for f, p in own) / sum(p for _, p in own) if own else text[c])
        apart = np.array([f - mu[label] for f, _, label in items])
        n, d = apart.shape
        covariance = apart.T @ apart / (n - 1)
        inverse = d * np.linalg.pinv((n - 1) * covariance + np.trace(covariance) * np.eye(d))
        w = np.array([inverse @ m for m in mu])
        b = np.array([-math.log(len(mu)) - 0.5 * m @ inverse @ m for m in mu])
        return w, b

    def fit(self):
        items = [(f, p, c) for c, own in enumerate(self.bank) for _, f, p in own]
        w, b = self.gaussians(items)
        again = []
        for f, _, _ in items:
            z = self.c.again_at * (w @ f + b)
            q = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            again.append((f, float(q.max()), int(q.argmax())))
        kept = []
        for f, q, c in again:
            own = [q for _, q, label in again if label == c]
            if q >= np.mean(own) + np.std(own) - 1e-12:
                kept.append((f, q, c))
        self.kept = len(kept)
        self.w, self.b = self.gaussians(kept)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        image, cells = rows[0], rows[6:]
        best = np.zeros(len(self.text))
        for f in cells.double().numpy():
            z = (self.w @ f + self.b) / 500
            z = z - z.max()
            best = np.maximum(best, np.exp(z) / np.exp(z).sum())
        score = 0.1 * (80 * self.text @ image).softmax(0).double()
        score = score + 0.9 * (self.c.local * torch.from_numpy(best)).softmax(0)
        for f in cells:
            logits = 60 * self.text @ f
            p = logits.softmax(0)
            self.bank[int(p.argmax())].append((float(h(logits)), f.double().numpy(), float(p.max())))
        self.bank = [sorted(own, key=lambda item: item[0])[: self.c.memory] for own in self.bank]
        self.seen += 1
        if self.seen % self.c.refit == 0:
            self.fit()
        return score.float()


def test_a_stream_equals_lists_and_a_pseudo_inverse():
    text = units(5, 16, seed=0)
    for config in (
        PIAAConfig(memory=20, refit=8, again_at=0.01, weight=0.9),
        PIAAConfig(memory=20, refit=8, again_at=0.3, local=200.0, weight=0.9),
    ):
        method = PIAA(Problem(golden.fixed_text(text), 100.0), config)
        rows = F.normalize(units(30, 6 + 9, 16, seed=1) + text[torch.arange(30) % 5][:, None], dim=-1)
        images, state, twin = Encoded({method.needs[0]: rows}), method.start(), ByHand(text, config)
        for i in range(30):
            branches, state = method.step(state, images[i])
            torch.testing.assert_close(method.merge(branches)[0], twin(rows[i]), atol=2e-5, rtol=1e-3)
        assert 0 < twin.kept < sum(map(len, twin.bank))
        np.testing.assert_allclose(state["weight"].numpy(), twin.w, atol=1e-4 * abs(twin.w).max())


def test_an_image_is_scored_before_it_is_remembered():
    text = units(5, 16, seed=0)
    method = PIAA(Problem(golden.fixed_text(text), 100.0), PIAAConfig(refit=1, weight=0.9))
    rows = units(2, 15, 16, seed=1)
    one = Encoded({method.needs[0]: rows[:1]})
    first, state = method.step(method.start(), one)
    again, _ = method.step(state, one)
    cells, cosines = rows[0, 6:], (80 * text @ rows[0, 0]).softmax(0)
    best = ((cells @ text.T - math.log(5) - 0.5) / 500).softmax(-1).amax(0)
    torch.testing.assert_close(first["view"][0], 0.1 * cosines + 0.9 * (400 * best).softmax(0))
    assert not torch.allclose(first["view"], again["view"], atol=1e-4)
