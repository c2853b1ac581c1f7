"""What is sped up on an NVIDIA GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from mltta.accelerate.cuda_labels import CudaLabelEncoder
from mltta.accelerate.cuda_search import HalfSearch
from mltta.accelerate.cuda_tower import CudaImageTower
from mltta.accelerate.patches import speed_up_patches
from mltta.accelerate.views import DeviceViews
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess
from mltta.model.acceleration import Acceleration, Renderer
from mltta.model.image_tower import ImageTower
from mltta.model.label_encoder import LabelEncoder
from mltta.model.prompts import Prompts
from mltta.model.search import Search
from mltta.model.text_tower import TextTower

log = logging.getLogger("mltta")


class CudaAcceleration(Acceleration):
    """Views made there, towers compiled and replayed, the labels' context run once, gradients from a Jacobian."""

    def start(self, visual: torch.nn.Module) -> None:
        if "patches" in self.tricks:
            speed_up_patches(visual)

    def image_tower(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ) -> ImageTower:
        tower = CudaImageTower(forward, device, dtype, side)
        tower.graphs = "graphs" in self.tricks
        return tower

    def label_encoder(
        self, tower: TextTower, prompts: Prompts, context: Tensor | None, features: Tensor | None = None
    ) -> LabelEncoder:
        if "shared-prefix" not in self.tricks:
            return LabelEncoder(tower, prompts, context, features)
        encoder = CudaLabelEncoder(tower, prompts, context, features)
        encoder.graphs, encoder.tf32 = "graphs" in self.tricks, "tensor-cores" in self.tricks
        encoder.jacobian = None if "jacobian" in self.tricks else False
        return encoder

    def search(self, base: Tensor) -> Search:
        return HalfSearch(base) if "search" in self.tricks else Search(base)

    def renderer(self, preprocess: Preprocess, device: torch.device, dtype: torch.dtype) -> Renderer | None:
        if "views" not in self.tricks or not kernels_work(device):
            return None
        spare = torch.cuda.mem_get_info(device)[0] // 16
        return DeviceViews(
            preprocess,
            device,
            dtype,
            channels_last=True,
            max_bytes=max(spare, 1 << 28),
            own_draws="draws" in self.tricks,
        )


@lru_cache(maxsize=16)
def kernels_work(device: torch.device) -> bool:
    """Whether Triton, which torch brings along on Linux, is here and can compile: tried with one pixel."""
    try:
        pixel = torch.zeros(1, 1, 3, dtype=torch.uint8)
        DeviceViews(Preprocess(size=1), device).render([pixel], ViewSpec(count=1), 0, [""])
    except Exception as error:  # no Triton, no compiler, a GPU too old: many ways
        log.warning(
            "views are made on the CPU, because Triton's kernels do not work here: %s", type(error).__name__
        )
        return False
    return True
