"""ZERO against the votes of its released code, and its order among labels with equal votes."""

from __future__ import annotations

import pytest
import torch

from mltta.images.specs import ViewSpec
from mltta.methods.base import Problem
from mltta.methods.zero import Zero, ZeroConfig
from mltta.model.encoded import Encoded
from tests import golden_data as golden

CASES = [
    f"zero/{arch}_{classes}_{scale}"
    for arch in ("vit", "rn")
    for classes in ("voc", "coco")
    for scale in ("sharp", "soft")
]


def zero(text: torch.Tensor, scale: float, **options) -> Zero:
    return Zero(Problem(golden.fixed_text(text), scale), ZeroConfig(**options))


@pytest.mark.parametrize("case", CASES)
def test_votes_equal_the_released_code(case):
    arch, temperature = case.split("/")[1].split("_")[0], case.split("_")[-1]
    want, backbone = golden.tensors(case), golden.backbone(arch, temperature)
    views = backbone.encode_images(golden.inputs(f"views_{arch}")["views"])
    torch.testing.assert_close(views @ want["text_features"].T, want["cos"], atol=2e-6, rtol=0)
    method = zero(
        want["text_features"],
        backbone.logit_scale,
        views=len(views),
        temperature=torch.finfo(torch.float32).eps,
        cosine=0.0,
    )
    streams = [(views[None], want["p_bar"], want["pred"])]
    if "stream_p_bar" in want:
        streams.append((golden.stream(64), want["stream_p_bar"], want["stream_pred"]))
    for features, votes, label in streams:
        found = method(Encoded({ViewSpec(count=64): features}))
        assert torch.equal(found.argmax(-1).int(), label)
        torch.testing.assert_close(found, votes, atol=1e-4, rtol=0)


def test_the_recordings_hold_ties():
    ties = [golden.tensors(case)["stream_tie"] for case in CASES if "stream_tie" in golden.tensors(case)]
    assert sum(int(tie.sum()) for tie in ties) > 0


def test_at_no_temperature_votes_are_whole_and_those_of_plain_loops():
    generator = torch.Generator().manual_seed(0)
    views = torch.nn.functional.normalize(torch.randn(20, 40, 8, generator=generator), dim=-1)
    text = torch.nn.functional.normalize(torch.randn(5, 8, generator=generator), dim=-1)
    method = zero(text, 10.0, views=40, cosine=0.0)
    found, ties = method(Encoded({ViewSpec(count=40): views})), 0
    for image, got in zip(views, found, strict=True):
        rows = [(float(torch.distributions.Categorical(logits=10 * v @ text.T).entropy()), v) for v in image]
        rows.sort(key=lambda row: row[0])
        votes = [0] * 5
        for _, view in rows[:12]:
            votes[int((view @ text.T).argmax())] += 1
        leaders = [label for label in range(5) if votes[label] == max(votes)]
        if len(leaders) > 1:
            ties += 1
            winner = next(
                label for _, view in rows[12:] if (label := int((view @ text.T).argmax())) in leaders
            )
            votes[winner] += 1
        assert got.tolist() == votes
    assert ties > 0


def test_labels_without_votes_are_ordered_by_cosine_and_no_vote_is_turned_over():
    text = torch.eye(3)
    views = torch.tensor([[[1.0, 0.2, 0.1]] * 3 + [[0.1, 1.0, 0.9]] * 2])
    views = torch.nn.functional.normalize(views, dim=-1)
    scores = zero(text, 10.0, views=5, select_ratio=1.0)(Encoded({ViewSpec(count=5): views}))[0]
    assert scores[0] > 3 > scores[1] > 2 > 1e-3 > scores[2] > 0
