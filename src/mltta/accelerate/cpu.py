"""CPU optimizations: freed memory is reused, norms are folded, the label context runs once, FAISS for many captions."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from itertools import pairwise

import torch
from open_clip.modified_resnet import ModifiedResNet
from timm.layers.conv2d_same import Conv2dSame
from timm.models.efficientnet import EfficientNet
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mltta.accelerate.labels import PackedLabelEncoder
from mltta.accelerate.search import FaissSearch
from mltta.model.acceleration import Acceleration
from mltta.model.label_encoder import LabelEncoder, Prompts, TextTower
from mltta.model.search import Search

# glibc's constants for mallopt.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
#: networks in which a norm after a convolution is the only consumer of its output
FOLDED = (EfficientNet, ModifiedResNet)


class CpuAcceleration(Acceleration):
    """The CPU optimizations."""

    def start(self, visual: nn.Module) -> None:
        if "allocation" in self.tricks:
            keep_freed_memory()
        if "folding" in self.tricks:
            fold_norms(visual)

    def label_encoder(self, tower: TextTower, prompts: Prompts, context: Tensor | None) -> LabelEncoder:
        kind = PackedLabelEncoder if "shared-prefix" in self.tricks else LabelEncoder
        return kind(tower, prompts, context)

    def search(self, base: Tensor) -> Search:
        return FaissSearch(base) if "search" in self.tricks else Search(base)


@cache
def keep_freed_memory() -> None:
    """Make the C library reuse large freed blocks instead of returning them to the system immediately.

    An image tower frees and allocates the same tens of megabytes layer after layer; getting them from the system
    each time took 40% of the encoding time. No effect with another C library, or if the user has set its
    environment variables.
    """
    if not sys.platform.startswith("linux") or any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)
    mallopt(_M_TOP_PAD, 1 << 26)


def fold_norms(visual: nn.Module) -> int:
    """Fold batch norms into the preceding convolutions, in place, and return how many; other towers are unchanged.

    The function stays the same, with one memory pass less per norm.
    """
    trunk = getattr(visual, "trunk", visual)
    if not isinstance(trunk, FOLDED):
        return 0
    folded = 0
    for block in list(trunk.modules()):
        for (name, convolution), (behind, norm) in pairwise(list(block.named_children())):
            plain = type(convolution) in (nn.Conv2d, Conv2dSame) and convolution.weight.dtype == torch.float32
            if plain and isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None:
                setattr(block, name, fuse_conv_bn_eval(convolution, norm))
                # timm's norms include an activation
                setattr(block, behind, getattr(norm, "act", nn.Identity()))
                folded += 1
    trunk.to(memory_format=torch.channels_last)
    return folded
