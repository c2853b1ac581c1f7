"""BoostAdapter against the numbers of its released code."""

from __future__ import annotations

import pytest
import torch

from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.boostadapter import BoostAdapter, BoostConfig
from mltta.methods.tda import TDA, TDAConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden

CASES = [f"boostadapter/vit_{name}" for name in ("voc_A", "voc_caltech101", "coco_caltech101")]


def recorded(case: str) -> tuple[dict[str, torch.Tensor], BoostAdapter]:
    want, given = golden.tensors(case), golden.manifest(case)["hyper_parameters"]
    config = BoostConfig(
        views=32,
        positive_alpha=given["positive"]["alpha"],
        positive_beta=given["positive"]["beta"],
        delta=given["delta"],
        query="clean" if given["infer_ori_image"] else "mean",
    )
    return want, BoostAdapter(Problem(golden.fixed_text(want["clip_weights"].T), 100.0), config)


@pytest.mark.parametrize("case", CASES)
def test_scores_equal_the_released_code(case):
    want, method = recorded(case)
    found = method(Encoded({ViewSpec(count=32): golden.stream(32)}))
    torch.testing.assert_close(found, want["final_logits"], atol=2e-4, rtol=0)


@pytest.mark.parametrize("case", CASES)
def test_what_is_remembered_is_what_the_released_code_was_offered(case):
    want, method = recorded(case)
    images, state = Encoded({ViewSpec(count=32): golden.stream(32)}), method.start()
    queue: dict[int, list[int]] = {}
    for i in range(60):
        _, state = method.step(state, images[i])
        label = int(want["pred"][i])
        if want["in_neg"][i]:
            queue[label] = [*queue.get(label, []), i][-2:]
    for label, last in queue.items():
        held = state["negative_key"][label][state["negative_entropy"][label].isfinite()]
        assert len(held) == len(last)
        for i in last:
            assert ((held - want["image_features"][i]).abs().amax(dim=-1) < 2e-6).any()
    assert any(len(last) == 2 for last in queue.values())


def test_crops_speak_for_their_own_image_and_are_not_remembered():
    _, method = recorded(CASES[1])
    views = golden.stream(32)
    plain = TDA(method.problem, TDAConfig(negative=False))
    state, other, gained = method.start(), plain.start(), 0.0
    for i in range(60):
        branches, state = method.step(state, Encoded({ViewSpec(count=32): views[i : i + 1]}))
        without, other = plain.step(other, Encoded({ViewSpec(count=1): views[i : i + 1, :1]}))
        gained += float((branches["view"] - without["view"]).abs().amax())
    assert torch.equal(state["positive_key"], other["positive_key"])
    assert gained > 1
