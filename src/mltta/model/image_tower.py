"""Any number of views through an image tower, in passes of a size that its device likes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.model.threads import each

# Views a pass: on the CPU few enough for its caches (64 at once take five times as long), on a GPU enough to fill it,
# if each may take so much of the memory that is free.
CPU_CHUNK, GPU_CHUNK, VIEW_BYTES = 8, 2048, 16 * 2**20


class ImageTower:
    """Unit features of views. On a CPU passes run side by side, each by one thread: the bits do not depend on cores."""

    def __init__(
        self, forward: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype, side: int
    ):
        """Args:
        forward: features (N, D), not of unit length, of views (N, 3, S, S).
        dtype: what the views are to be in.
        side: S.
        """
        self._forward, self._device, self._dtype, self._side = forward, device, dtype, side
        #: views a pass
        area = max(1.0, (side / 224) ** 2)
        self.chunk = CPU_CHUNK if device.type != "cuda" else _views_that_fit(device, area)

    def __call__(self, views: Tensor) -> Tensor:
        """Unit float32 features (N, D), or (N, L, D) of a tower that gives several."""
        return torch.cat(each(self.one_pass, torch.split(views, self.chunk), self._device))

    @torch.no_grad()  # each thread has to be told
    def one_pass(self, views: Tensor) -> Tensor:
        """Unit float32 features of views, all in one pass."""
        found = self._run(views.to(self._device, self._dtype, memory_format=torch.channels_last))
        return F.normalize(found.float(), dim=-1)

    def _run(self, views: Tensor) -> Tensor:
        return self._forward(views)

    def compile(self, views: int | None = None) -> None:
        """Make passes of so many views faster, where there is a way: here there is none."""


def _views_that_fit(device: torch.device, area: float) -> int:
    """How many views a GPU takes at once: a power of two, by the memory that is free and the area of a view."""
    room = int(torch.cuda.mem_get_info(device)[0] // (VIEW_BYTES * area))
    return int(min(GPU_CHUNK // area, max(64 // area, 2 ** (max(1, room).bit_length() - 1), 1)))
