"""NVIDIA GPU optimizations: views rendered on the device, towers compiled and replayed, gradients from a Jacobian."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mltta.accelerate.cuda_labels import CudaLabelEncoder
from mltta.accelerate.cuda_tower import CudaImageTower
from mltta.accelerate.search import HalfSearch
from mltta.accelerate.views import DeviceViews
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess
from mltta.model.acceleration import Acceleration, Renderer
from mltta.model.label_encoder import LabelEncoder, Prompts, TextTower
from mltta.model.passes import ImageTower
from mltta.model.search import Search

log = logging.getLogger("mltta")


class CudaAcceleration(Acceleration):
    """The NVIDIA GPU optimizations."""

    def start(self, visual: nn.Module) -> None:
        if "patches" in self.tricks:
            speed_up_patches(visual)

    def image_tower(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ) -> ImageTower:
        tower = CudaImageTower(forward, device, dtype, side)
        tower.graphs = "graphs" in self.tricks
        return tower

    def label_encoder(self, tower: TextTower, prompts: Prompts, context: Tensor | None) -> LabelEncoder:
        if "shared-prefix" not in self.tricks:
            return LabelEncoder(tower, prompts, context)
        encoder = CudaLabelEncoder(tower, prompts, context)
        encoder.graphs, encoder.tf32 = "graphs" in self.tricks, "tensor-cores" in self.tricks
        encoder.jacobian = None if "jacobian" in self.tricks else False
        return encoder

    def search(self, base: Tensor) -> Search:
        return HalfSearch(base) if "search" in self.tricks else Search(base)

    def renderer(self, preprocess: Preprocess, device: torch.device, dtype: torch.dtype) -> Renderer | None:
        if "views" not in self.tricks or not kernels_work(device):
            return None
        room = max(torch.cuda.mem_get_info(device)[0] // 16, 1 << 28)
        own = "draws" in self.tricks
        return DeviceViews(preprocess, device, dtype, channels_last=True, max_bytes=room, own_draws=own)


@lru_cache(maxsize=16)
def kernels_work(device: torch.device) -> bool:
    """Whether Triton (included with torch on Linux) can compile here: tested with one pixel."""
    try:
        pixel = torch.zeros(1, 1, 3, dtype=torch.uint8)
        DeviceViews(Preprocess(size=1), device).render([pixel], ViewSpec(count=1), 0, [""])
    except Exception as error:  # no Triton, no compiler, an old GPU: many types
        log.warning("rendering views on the CPU, because Triton does not work here: %s", type(error).__name__)
        return False
    return True


def speed_up_patches(visual: nn.Module) -> None:
    """Run the patch convolution as a matrix product: such convolutions are slow on GPUs."""
    conv = getattr(visual, "conv1", None)
    if isinstance(conv, nn.Conv2d) and conv.stride == conv.kernel_size and conv.padding == (0, 0):
        conv.forward = partial(embed_patches, conv)  # type: ignore[method-assign]


def embed_patches(conv: nn.Conv2d, images: Tensor) -> Tensor:
    """Output (B, W, h, w) of the convolution for images (B, 3, H, W), which should be channels-last in memory."""
    down, across = conv.kernel_size
    batch, channels, height, width = images.shape
    rows, columns = height // down, width // across
    kept = images[:, :, : rows * down, : columns * across].permute(0, 2, 3, 1)
    patches = kept.reshape(batch, rows, down, columns, across, channels).transpose(2, 3)
    weight = conv.weight.permute(0, 2, 3, 1).flatten(1)  # (W, down * across * channels)
    return F.linear(patches.reshape(batch, rows, columns, -1), weight, conv.bias).permute(0, 3, 1, 2)
