"""TDA against the numbers of its released code, and against dictionaries of lists written from its description."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical

from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.memory import empty_memory, remember
from mltta.methods.tda import TDA, TDAConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden

CASES = [f"tda/vit_{name}" for name in ("voc_imagenet", "voc_caltech101", "voc_eurosat", "coco_caltech101")]


def images(features: torch.Tensor) -> Encoded:
    return Encoded({ViewSpec(count=features.shape[1]): features})


def units(*shape: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize("case", CASES)
def test_caches_and_scores_equal_the_released_code(case):
    want, given = golden.tensors(case), golden.manifest(case)["hyper_parameters"]
    assert given["negative"]["entropy_threshold"] == {"lower": 0.2, "upper": 0.5}
    config = TDAConfig(positive_alpha=given["positive"]["alpha"], positive_beta=given["positive"]["beta"])
    method = TDA(Problem(golden.fixed_text(want["clip_weights"].T), 100.0), config)
    torch.testing.assert_close(golden.stream(1)[:, 0], want["image_features"], atol=2e-6, rtol=0)

    stream, state = images(want["image_features"][:, None]), method.start()
    doubtful = want["in_neg"].bool()
    offered = [[] for _ in range(len(want["pos_count"]))]
    offered_doubtful = [[] for _ in offered]
    for i in range(60):
        branches, state = method.step(state, stream[i])
        torch.testing.assert_close(method.merge(branches)[0], want["final_logits"][i], atol=2e-4, rtol=0)
        label = want["pred"][i]
        offered[label].append((want["entropy"][i].item(), i))
        if doubtful[i]:
            offered_doubtful[label].append((want["entropy"][i].item(), i))

    for memory, lists, capacity, count in (
        ("positive", offered, 3, "pos_count"),
        ("negative", offered_doubtful, 2, "neg_count"),
    ):
        held = state[f"{memory}_entropy"]
        assert torch.equal(held.isfinite().sum(-1).int(), want[count])
        for label, seen in enumerate(lists):  # what stays are the surest of all that were offered
            stays = {i for _, i in sorted(seen)[:capacity]}
            keys = state[f"{memory}_key"][label][held[label].isfinite()]
            assert {int((want["image_features"] == key).all(-1).nonzero()) for key in keys} == stays
    torch.testing.assert_close(method(stream), want["final_logits"], atol=2e-4, rtol=0)


def test_the_doubtful_images_of_a_recording_are_found():
    assert all(0 < int(golden.tensors(case)["in_neg"].sum()) < 60 for case in CASES)


class ByHand:
    """TDA as its description says it, with dictionaries of lists."""

    def __init__(self, text: torch.Tensor, scale: float):
        self.text, self.scale = text, scale
        self.positive: dict[int, list] = {}
        self.negative: dict[int, list] = {}
        self.doubtful = 0

    @staticmethod
    def insert(cache: dict[int, list], label: int, capacity: int, item: tuple) -> None:
        items = cache.setdefault(label, [])
        if len(items) < capacity:
            items.append(item)
        elif item[0] < items[-1][0]:
            items[-1] = item
        items.sort(key=lambda item: item[0])

    def __call__(self, views: torch.Tensor) -> torch.Tensor:
        logits = self.scale * views @ self.text.T
        sure = sorted(range(len(views)), key=lambda j: float(Categorical(logits=logits[j]).entropy()))
        sure = sure[: max(1, len(views) // 10)]
        x, row = views[sure].mean(0), logits[sure].mean(0)
        p = logits[sure].softmax(-1).mean(0)
        h, label = -sum(float(q) * math.log(q) for q in p.double()), int(row.argmax())
        self.insert(self.positive, label, 3, (h, x))
        if 0.2 < h / math.log2(len(p)) < 0.5:
            self.insert(self.negative, label, 2, (h, x, p))
            self.doubtful += 1
        score = row.clone()
        for c, items in self.positive.items():
            for _, key in items:
                score[c] += 2.0 * math.exp(-5.0 * (1 - float(x @ key)))
        for items in self.negative.values():
            for _, key, q in items:
                for c in range(len(q)):
                    if 0.03 < q[c] < 1:
                        score[c] -= 0.117 * math.exp(-1.0 * (1 - float(x @ key)))
        return score


@pytest.mark.parametrize("views", [1, 64])
def test_a_stream_equals_dictionaries_of_lists(views):
    text, scale = units(7, 16, seed=1), 8.0  # soft enough for entropies on both sides of the gate
    stream = F.normalize(units(60, 1, 16, seed=2) + 0.5 * units(60, views, 16, seed=3), dim=-1)
    method, twin = TDA(Problem(golden.fixed_text(text), scale), TDAConfig(views=views)), ByHand(text, scale)
    want = torch.stack([twin(image) for image in stream])
    torch.testing.assert_close(method(images(stream)), want, atol=1e-4, rtol=0)
    assert 14 < twin.doubtful < 60
    assert any(len(items) == 3 for items in twin.positive.values())


def test_a_slot_is_given_to_the_surer_image_and_the_earlier_one_stays_when_both_are_equally_sure():
    state = empty_memory("seen", 2, 2, key=torch.zeros(()))
    for entropy, key in ((0.5, 1), (0.9, 2), (math.nan, 3), (0.7, 4), (0.7, 5), (0.8, 6)):
        remember(state, "seen", 1, entropy, key=torch.tensor(float(key)))
    torch.testing.assert_close(state["seen_key"], torch.tensor([[0.0, 0.0], [1.0, 4.0]]))
    torch.testing.assert_close(state["seen_entropy"], torch.tensor([[math.inf, math.inf], [0.5, 0.7]]))


def test_an_image_finds_itself():
    text = units(7, 16, seed=1)
    method = TDA(Problem(golden.fixed_text(text), 100.0), TDAConfig(negative=False))
    image = units(1, 1, 16, seed=3)
    logits = method.logits(image[0], text)[0]
    gain = torch.zeros(7)
    gain[logits.argmax()] = 2.0  # alpha, at the likeness 1
    torch.testing.assert_close(method(images(image))[0] - logits, gain, atol=1e-4, rtol=0)


def test_without_the_negative_cache_no_score_falls():
    text, stream = units(7, 16, seed=1), units(60, 1, 16, seed=2)
    problem = Problem(golden.fixed_text(text), 8.0)
    positive = TDA(problem, TDAConfig(negative=False))
    clip = positive.logits(stream, text)[:, 0]
    scores = positive(images(stream))
    assert (scores > clip - 1e-5).all()
    both = TDA(problem, TDAConfig())(images(stream))
    assert (both < scores + 1e-5).all()
    assert (both < scores - 0.01).any()
    assert not any(name.startswith("negative") for name in positive.start())


@pytest.mark.parametrize(
    "bad",
    [{"positive_capacity": 0}, {"entropy_low": 0.6}, {"mask_low": 2.0}, {"negative": "no"}, {"views": 0}],
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        TDAConfig.make(**bad)
