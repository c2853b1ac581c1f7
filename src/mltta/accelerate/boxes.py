"""Boxes of many images to resample at once, and upload to a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor

from mltta.images.geometry import Ints

#: fractional bits of a weight
BITS = 22
# Maximum number of boxes at once: the GPU's limit for the second grid dimension.
MOST = 65_535
_PILLOW_13 = int(PIL.__version__.split(".")[0]) >= 13


@dataclass(frozen=True)
class Boxes:
    """V boxes to resample, and their locations."""

    offset: Ints  # (V,) byte offset of its image in the tensor of all images' pixels, each (H, W, 3)
    width: Ints  # (V,) width of its image
    axes: Ints  # (V, 2, 5) along x and y, rows of `Axis`
    kept: Ints  # (V, 2) number of pixels kept along x and y
    place: Ints  # (V,) index of its first pixel in the output
    stride: Ints  # (V,) row stride of the output

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, part: slice) -> Boxes:
        return Boxes(*(field[part] for field in vars(self).values()))

    @property
    def along_y(self) -> NDArray[np.bool_]:
        """Mask of boxes that Pillow resamples along y first, which affects its intermediate rounding."""
        (width, height), (new_width, new_height) = self.axes[:, :, 1].T, self.axes[:, :, 2].T
        tall = height - new_height > 2 * (width - new_width) if _PILLOW_13 else height > 100 * width
        return tall & (height > new_height)  # type: ignore[no-any-return]

    @property
    def between(self) -> Ints:
        """Size of each box after the first pass, in bytes (V,)."""
        length, kept = self.axes[:, :, 1], self.kept
        return 3 * np.where(self.along_y, kept[:, 1] * length[:, 0], kept[:, 0] * length[:, 1])

    def taps(self, cubic: bool) -> int:
        """Maximum number of source pixels per output pixel."""
        reach = np.maximum(1, self.axes[:, :, 1] / self.axes[:, :, 2]).max()
        return 2 * int(np.ceil(reach * (2 if cubic else 1))) + 1

    def chunks(self, max_bytes: int) -> Iterator[Boxes]:
        """Split so that intermediate results fit into memory, with at least one box each."""
        ends = np.cumsum(self.between)
        start = 0
        while start < len(self):
            before = ends[start - 1] if start else 0
            fit = int(np.searchsorted(ends, before + max_bytes, side="right"))
            end = min(max(start + 1, fit), start + MOST)
            yield self[start:end]
            start = end


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy to the device without waiting for pending work."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
