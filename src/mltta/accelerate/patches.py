"""The patch embedding of a ViT as one matrix product: on GPUs, convolutions that do not overlap are slow."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn


def speed_up_patches(visual: nn.Module) -> None:
    """Let the convolution that cuts images into patches, where a tower has one, run as a product."""
    conv = getattr(visual, "conv1", None)
    if isinstance(conv, nn.Conv2d) and conv.stride == conv.kernel_size and conv.padding == (0, 0):
        conv.forward = partial(embed_patches, conv)  # type: ignore[method-assign]


def embed_patches(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """What the convolution gives for images (B, 3, H, W), channels last in memory as they should be: (B, W, h, w)."""
    down, across = conv.kernel_size
    batch, channels, height, width = images.shape
    rows, columns = height // down, width // across
    kept = images[:, :, : rows * down, : columns * across].permute(0, 2, 3, 1)
    patches = kept.reshape(batch, rows, down, columns, across, channels).transpose(2, 3)
    weight = conv.weight.permute(0, 2, 3, 1).flatten(1)  # (W, down * across * channels)
    return F.linear(patches.reshape(batch, rows, columns, -1), weight, conv.bias).permute(0, 3, 1, 2)
