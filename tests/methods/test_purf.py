"""PuRF against lists and PyTorch's own AdamW, written from its description and the choices that are ours."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from mltta import create_method
from mltta.model.encoded import Encoded
from tests import golden_data as golden
from tests.methods.test_dpe import h, units

LABELS = ["dog", "cat", "boat", "person", "bus", "chair"]


class ByHand:
    def __init__(self, experts: torch.Tensor, scale: float, likely: int):
        self.experts, self.scale, self.likely = experts, scale, likely
        self.cache: dict[int, list] = {}  # doubt, region, image it came with
        self.bar = [0.0] * experts.shape[1]
        self.seen = self.agreed = self.evicted = 0

    @staticmethod
    def middle(experts):
        return F.normalize(sum(F.normalize(e, dim=-1) for e in experts) / len(experts), dim=-1)

    def score(self, x, pure, text):
        scores = []
        for c in range(len(text)):
            whole = self.scale * x @ text[c]
            if not pure:
                scores.append(whole)
                continue
            value = 0.5 * whole + 0.5 * max(self.scale * f @ text[c] for f in pure)
            if c in self.cache:
                key = sum(f for _, f, _ in self.cache[c]) / len(self.cache[c])
                value = value + 6 * torch.exp(-5 * (1 - max(f @ key for f in pure)))
            scores.append(value)
        return torch.stack(scores)

    def __call__(self, views, regions):
        self.seen += 1
        text = self.middle(self.experts)
        named = set(range(len(text)))
        for v in views:
            named &= set((text @ v).argsort(descending=True)[: self.likely].tolist())
        shares = [(self.scale * text @ f).softmax(0) for f in regions]
        for c in range(len(text)):
            mean = sum(float(s[c]) for s in shares) / len(shares)
            self.bar[c] += (mean - self.bar[c]) / self.seen
        pure = [q for q, s in enumerate(shares) if float(s.max()) >= self.bar[int(s.argmax())]]
        labels = named & {int(shares[q].argmax()) for q in pure}
        self.agreed += bool(labels)
        kept = [regions[q] for q in pure]

        residual = torch.zeros_like(self.experts, requires_grad=True)
        moved = self.middle(self.experts + residual)
        rows = sorted((self.scale * moved @ v for v in views), key=lambda row: float(h(row.detach())))
        mean = sum(row.softmax(0) for row in rows[: max(1, len(views) // 10)]) / max(1, len(views) // 10)
        loss = -(mean * mean.log()).sum()
        cached = sorted(self.cache)
        for i, c in enumerate(cached):
            key = F.normalize(sum(f for _, f, _ in self.cache[c]), dim=-1)
            against = torch.stack([key @ moved[other] for other in cached]) / 0.01
            loss = loss + 0.5 * -against.log_softmax(0)[i] / len(cached)
        if labels:
            scores = self.score(views[0], kept, moved)
            target = torch.tensor([float(c in labels) for c in range(len(text))])
            centred = torch.sigmoid(scores - scores.mean())
            bce = -(target * centred.log() + (1 - target) * (1 - centred).log()).mean()
            loss = loss + 0.2 * bce
        loss.backward()
        torch.optim.AdamW([residual], lr=6e-4, eps=1e-3, weight_decay=0.1).step()
        with torch.no_grad():
            found = self.score(views[0], kept, self.middle(self.experts + residual))
            moved = F.normalize(self.experts + residual, dim=-1)
            self.experts = F.normalize((self.seen - 1) * self.experts + moved, dim=-1)
        for c in labels:
            doubts = [(float(h(self.scale * text @ regions[q])), q) for q in pure if shares[q].argmax() == c]
            doubt, best = min(doubts)
            items = [*self.cache.get(c, []), (doubt, regions[best], self.seen)]
            items.sort(key=lambda item: item[0] * math.exp((self.seen - item[2] - 8) / 8))
            self.evicted += len(items) > 3
            self.cache[c] = items[:3]
        return found


def test_a_stream_equals_lists_and_adamw():
    method = create_method(
        "purf", golden.backbone("vit", "soft"), LABELS, views=20, regions=10, kappa=0.5, lifetime=8.0
    )
    at = method.experts[2][torch.arange(50) % 3][:, None]
    views = F.normalize(0.4 * units(50, 20, 32, seed=3) + at, dim=-1)
    regions = F.normalize(units(50, 11, 32, seed=4) + at, dim=-1)
    twin, state = ByHand(method.experts, method.logit_scale, 3), method.start()
    whole, parts = method.needs
    images = Encoded({whole: views, parts: regions})
    for i in range(50):
        branches, state = method.step(state, images[i])
        want = twin(views[i], regions[i, 1:])
        torch.testing.assert_close(method.merge(branches)[0], want.detach(), atol=1e-3, rtol=0)
    assert 0 < twin.agreed < 50
    assert twin.evicted > 0
    torch.testing.assert_close(state["text"], twin.experts, atol=1e-4, rtol=0)


def test_without_pure_regions_the_whole_stands_alone():
    method = create_method("purf", golden.backbone("vit"), LABELS, views=4, regions=2)
    text, image = method.text.features, units(1, 32, seed=0)[0]
    found = method.score(image, text[:0], text, text, torch.ones(len(text), dtype=torch.bool))
    torch.testing.assert_close(found, method.logit_scale * text @ image)
