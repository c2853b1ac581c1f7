"""DMN against the numbers of its released code, and against lists written from its description."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.dmn import DMN, DMNConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden

CASES = ["dmn/vit_voc_mem50", "dmn/vit_coco_mem50", "dmn/vit_voc_mem3"]


def images(features: torch.Tensor) -> Encoded:
    return Encoded({ViewSpec(count=features.shape[1]): features})


def units(*shape: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize("case", CASES)
def test_memory_and_probabilities_equal_the_released_code(case):
    want, size = golden.tensors(case), golden.manifest(case)["hyper_parameters"]["memory_size"]
    config = DMNConfig.make("released", augmix=False, memory=size)
    method = DMN(Problem(golden.fixed_text(want["text_feat"]), golden.backbone("vit").logit_scale), config)
    features, state = golden.stream(32), method.start()
    stream, offered = images(features), [[] for _ in want["memory_count"]]
    for i in range(60):
        guess = method.guess(features[i])
        torch.testing.assert_close(guess, want["init_pred"][i], atol=2e-5, rtol=0)
        offered[int(want["init_pred"][i].argmax())].append(i)
        branches, state = method.step(state, stream[i])
        torch.testing.assert_close(branches["text"][0], want["text_prob_view0"][i], atol=2e-5, rtol=0)
        torch.testing.assert_close(branches["memory"][0], want["memory_prob"][i], atol=2e-5, rtol=0)
        torch.testing.assert_close(method.merge(branches)[0], want["sum_prob"][i], atol=4e-5, rtol=0)

    filled = state["image_entropy"].isfinite()
    assert torch.equal(filled.sum(-1).int(), want["memory_count"])
    held = state["image_entropy"].where(filled, want["memory_entropy"])
    torch.testing.assert_close(held, want["memory_entropy"], atol=2e-4, rtol=0)
    assert (state["image_key"][~filled] == 0).all()
    p = want["init_pred"]
    unsure = -(p * (p + 1e-8).log()).sum(-1)
    for label, seen in enumerate(offered):
        stays = set(sorted(seen, key=lambda i: float(unsure[i]))[:size])
        keys = state["image_key"][label][filled[label]]
        assert {int((features[:, 0] == key).all(-1).nonzero()) for key in keys} == stays


def test_a_recorded_memory_overflows():
    assert int(golden.tensors("dmn/vit_voc_mem50")["memory_count"].max()) > 3


class ByHand:
    """DMN as its description says it, with a list for every label."""

    def __init__(self, text: torch.Tensor, scale: float, memory: int):
        self.text, self.scale, self.memory = text, scale, memory
        self.kept: list[list[tuple[float, torch.Tensor]]] = [[] for _ in text]

    def __call__(self, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        p = (self.scale * views @ self.text.T).softmax(-1)
        unsure = [-sum(float(q) * math.log(q + 1e-6) for q in row) for row in p]
        sure = sorted(range(len(views)), key=lambda j: unsure[j])[: len(views) // 10]
        mean = p[sure].mean(0)
        h, x = -sum(float(q) * math.log(q + 1e-8) for q in mean), views[0]
        items = self.kept[int(mean.argmax())]
        if len(items) < self.memory:
            items.append((h, x))
        elif any(h < other for other, _ in items):
            items[max(range(len(items)), key=lambda i: items[i][0])] = (h, x)
        memory = []
        for t, kept in zip(self.text, self.kept, strict=True):
            proto = sum(math.exp(-5.5 * (1 - float(x @ item))) * item for item in [*(f for _, f in kept), t])
            memory.append(self.scale * float(x @ proto / proto.norm()))
        return self.scale * self.text @ x, torch.tensor(memory)


@pytest.mark.parametrize("memory", [2, 50])
@pytest.mark.parametrize("score", ["logits", "probs"])
def test_a_stream_equals_lists_for_every_label(memory, score):
    text, stream = units(7, 16, seed=1), units(60, 32, 16, seed=2)
    method = DMN(Problem(golden.fixed_text(text), 10.0), DMNConfig(memory=memory, score=score, beta2=0.3))
    twin = ByHand(text, 10.0, memory)
    parts = [twin(image) for image in stream]
    if score == "probs":
        parts = [(a.softmax(-1), b.softmax(-1)) for a, b in parts]
    want = torch.stack([a + 0.3 * b for a, b in parts])
    torch.testing.assert_close(method(images(stream)), want, atol=1e-4, rtol=0)
    assert max(len(items) for items in twin.kept) > 1


def test_before_anything_is_remembered_the_memory_is_the_prompt():
    text, image = units(7, 16, seed=1), units(1, 32, 16, seed=2)
    method = DMN(Problem(golden.fixed_text(text), 100.0), DMNConfig())
    torch.testing.assert_close(method.prototypes(method.start(), image[0, 0]), text)


def test_the_default_adds_logits_and_the_released_preset_adds_probabilities():
    text, image = units(7, 16, seed=1), units(1, 32, 16, seed=2)
    problem = Problem(golden.fixed_text(text), 100.0)
    ours, theirs = (DMN(problem, DMNConfig.make(preset, augmix=False)) for preset in ("paper", "released"))
    logits, probs = ours.branches(images(image)), theirs.branches(images(image))
    for name in ("text", "memory"):
        torch.testing.assert_close(logits[name].softmax(-1), probs[name])
    assert theirs(images(image)).sum().item() == pytest.approx(2.0, abs=1e-4)


@pytest.mark.parametrize("bad", [{"memory": 0}, {"views": 0}, {"score": "votes"}, {"beta2": "search"}])
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        DMNConfig.make(**bad)
