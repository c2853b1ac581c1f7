"""A ViT's patches by one product are those of its convolution."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mltta.accelerate.cuda import embed_patches, speed_up_patches


@pytest.mark.parametrize("side", [32, 39])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_product_is_the_convolution(side: int, bias: bool, layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 24, (8, 16), (8, 16), bias=bias)
    images = torch.randn(2, 3, side, 48).contiguous(memory_format=layout)
    torch.testing.assert_close(embed_patches(conv, images), conv(images), atol=1e-5, rtol=1e-5)


def test_only_convolutions_that_do_not_overlap_are_replaced() -> None:
    for conv, replaced in ((nn.Conv2d(3, 4, 8, 8), True), (nn.Conv2d(3, 4, 3, 2, 1), False)):
        visual = nn.Module()
        visual.conv1 = conv
        before = repr(visual)
        speed_up_patches(visual)
        assert ("forward" in vars(conv)) is replaced
        assert repr(visual) == before
    speed_up_patches(nn.Module())  # a tower without one is left alone
