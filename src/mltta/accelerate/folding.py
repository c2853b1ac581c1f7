"""Batch norms folded into the convolutions before them: the same function, a walk through memory less for each."""

from __future__ import annotations

from itertools import pairwise

import torch
from open_clip.modified_resnet import ModifiedResNet
from timm.layers.conv2d_same import Conv2dSame
from timm.models.efficientnet import EfficientNet
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

#: networks in whose blocks a norm that stands behind a convolution reads it, and is its only reader
FOLDED = (EfficientNet, ModifiedResNet)


def fold_norms(visual: nn.Module) -> int:
    """Fold what can be folded, in place, and say how many norms that were; other towers stay as they are."""
    trunk = getattr(visual, "trunk", visual)
    if not isinstance(trunk, FOLDED):
        return 0
    folded = 0
    for block in list(trunk.modules()):
        for (name, convolution), (behind, norm) in pairwise(list(block.named_children())):
            plain = type(convolution) in (nn.Conv2d, Conv2dSame) and convolution.weight.dtype == torch.float32
            if plain and isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None:
                setattr(block, name, fuse_conv_bn_eval(convolution, norm))
                # timm's norms end in an activation
                setattr(block, behind, getattr(norm, "act", nn.Identity()))
                folded += 1
    trunk.to(memory_format=torch.channels_last)
    return folded
