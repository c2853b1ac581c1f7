"""DPE against lists of tensors and PyTorch's own AdamW, written from its description."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch.distributions import Categorical

from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.dpe import DPE, DPEConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden


def units(*shape: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def h(logits: torch.Tensor) -> torch.Tensor:
    return Categorical(logits=logits).entropy()


class ByHand:
    def __init__(self, text: torch.Tensor, scale: float, gate: float):
        self.text, self.scale, self.gate = text, scale, gate
        self.cache: dict[int, list] = {}
        self.updates = 0

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        of_text = torch.zeros_like(self.text, requires_grad=True)
        moved = F.normalize(self.text + of_text, dim=-1)
        rows = self.scale * views @ moved.T
        sure = rows.detach().softmax(-1)
        sure = (-(sure * sure.log()).sum(-1)).argsort()[: len(views) // 10]
        f, row = views[sure].mean(0), rows[sure].mean(0)
        mean = rows[sure].softmax(-1).mean(0).detach()
        doubt, label = float(-(mean * mean.log()).sum()), int(row.argmax())
        items = sorted([*self.cache.get(label, []), (doubt, f)], key=lambda item: item[0])
        self.cache[label] = items[:3]
        cached = sorted(self.cache)
        keys = torch.stack([sum(f for _, f in self.cache[c]) / len(self.cache[c]) for c in cached])
        of_keys = torch.zeros_like(keys, requires_grad=True)

        def logits(x, text, keys):
            out = list(self.scale * text @ x)
            for i, c in enumerate(cached):
                out[c] = out[c] + 6 * torch.exp(-5 * (1 - x @ keys[i]))
            return torch.stack(out)

        shifted = F.normalize(keys + of_keys, dim=-1)
        loss = h(logits(f, moved, shifted))
        for i, c in enumerate(cached):
            against = torch.stack([shifted[i] @ moved[other] for other in cached]) / 0.01
            loss = loss + 0.5 * -against.log_softmax(0)[cached.index(c)] / len(cached)
        loss.backward()
        torch.optim.AdamW([of_text, of_keys], lr=6e-4, eps=1e-3, weight_decay=0.1).step()
        with torch.no_grad():
            moved = F.normalize(self.text + of_text, dim=-1)
            scores = logits(views[0], moved, F.normalize(keys + of_keys, dim=-1))
            if float(h(scores)) / math.log2(len(scores)) < self.gate:
                self.updates += 1
                n = self.updates
                self.text = self.text * n / (n + 1) + moved / (n + 1)
        return scores


def test_a_stream_equals_lists_and_adamw():
    text, views = units(6, 16, seed=0), units(40, 20, 16, seed=1)
    views = F.normalize(views + 0.8 * text[torch.arange(40) % 6][:, None], dim=-1)
    method = DPE(Problem(golden.fixed_text(text), 10.0), DPEConfig(views=20, gate=0.15))
    twin, state = ByHand(text, 10.0, 0.15), method.start()
    images = Encoded({ViewSpec(count=20): views})
    for i in range(40):
        branches, state = method.step(state, images[i])
        torch.testing.assert_close(method.merge(branches)[0], twin(views[i]), atol=2e-4, rtol=0)
    assert 0 < twin.updates < 40
    assert int(state["updates"]) == twin.updates
    torch.testing.assert_close(state["text"], twin.text, atol=1e-5, rtol=0)
