"""Windows, mosaics, crops and the reading of local views, against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from training.compose import cut, mosaic
from training.images import crops
from training.judge import in_windows
from training.rule import Scale, Votes, confident_mean
from training.windows import pooled


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("window", "stride"), [(3, 1), (4, 2), (2, 3)])
def test_windows_are_means_of_their_locations_line_by_line(window: int, stride: int) -> None:
    maps = drawn(2, 5, 6, 7)
    found = pooled(maps, window, stride)
    expected = [
        maps[:, :, y : y + window, x : x + window].mean((2, 3))
        for y in range(0, 6 - window + 1, stride)
        for x in range(0, 7 - window + 1, stride)
    ]
    assert torch.allclose(found, torch.stack(expected, 1), atol=1e-6)


def test_a_window_of_nothing_or_too_large_is_the_whole() -> None:
    maps = drawn(2, 3, 4, 5)
    assert torch.allclose(pooled(maps, 0)[:, 0], maps.mean((2, 3)), atol=1e-6)
    assert torch.allclose(pooled(maps, 9)[:, 0], maps.mean((2, 3)), atol=1e-6)


def test_confident_mean_weights_each_view_by_its_highest() -> None:
    p = drawn(2, 4, 3).softmax(-1)
    found = confident_mean(p)
    for i in range(2):
        weights = [max(p[i, v].tolist()) for v in range(4)]
        for c in range(3):
            expected = sum(w * float(p[i, v, c]) for v, w in enumerate(weights)) / sum(weights)
            assert found[i, c].item() == pytest.approx(expected, rel=1e-5)


def test_captions_vote_by_their_softmax() -> None:
    views, captions = drawn(1, 2, 4), drawn(3, 4, seed=1)
    names = torch.tensor([[1.0, 0], [1, 1], [0, 0]])
    found = Votes(captions, names)(views, torch.tensor(2.0))
    for v in range(2):
        e = [float((2 * views[0, v] @ captions[k]).exp()) for k in range(3)]
        assert found[0, v].tolist() == pytest.approx([(e[0] + e[1]) / sum(e), e[1] / sum(e)], rel=1e-5)


def test_scales_are_read_as_they_are_written() -> None:
    assert Scale.parse("224") == Scale(224, 0, 1)
    assert Scale.parse("512x4x2") == Scale(512, 4, 2)


def test_a_mosaic_cut_into_its_parts_gives_them_back() -> None:
    parts = torch.rand(2 * 6, 3, 8, 8)
    whole = mosaic(parts, 2, 3, 24)
    assert whole.shape == (2, 3, 24, 24)
    assert whole[0, :, 12:, 16:].shape == (3, 12, 8)
    same = torch.rand(2 * 4, 3, 8, 8)  # the size fits: nothing is squeezed
    assert torch.allclose(cut(mosaic(same, 2, 2, 16), 2, 2), same, atol=1e-6)
    assert torch.allclose(mosaic(same, 2, 2, 16)[1, :, :8, 8:], same[5], atol=1e-6)


def test_a_map_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be cut into 3 x 3"):
        cut(torch.zeros(1, 2, 14, 14), 3, 3)


def test_crops_lie_where_they_say() -> None:
    image = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    image[..., 32:] = 255  # dark on the left, bright on the right
    pixels, boxes = crops(image.expand(40, -1, -1, -1), 32, 0.3, 0.2, torch.Generator().manual_seed(0))
    for x, box in zip(pixels, boxes, strict=True):
        left, right = (float(box[0, 0] * end + box[0, 2]) for end in (-1, 1))  # in the image, from -1 to 1
        assert -1.001 <= min(left, right) <= max(left, right) <= 1.001
        columns = x.mean((0, 1))
        if left < -0.2 and right > 0.2:
            assert columns[0] < columns[-1]
        if left > 0.2 and right < -0.2:  # mirrored
            assert columns[0] > columns[-1]


def test_what_the_judge_says_of_windows_is_a_distribution_and_of_no_window_the_mean() -> None:
    logits = drawn(2, 5, 4, 4) * 3
    assert torch.allclose(in_windows(logits, 0)[:, 0], logits.mean((2, 3)).softmax(-1), atol=1e-6)
    assert np.allclose(in_windows(logits, 2).sum(-1), 1, atol=1e-5)
