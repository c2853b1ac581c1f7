"""Boxes of many images that are to be resampled at once, and the way of numbers to a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor

from mltta.images.geometry import Ints

#: bits behind the point of a weight
BITS = 22
# Boxes at once: a GPU's limit on the second side of its grid.
MOST = 65_535
_PILLOW_13 = int(PIL.__version__.split(".")[0]) >= 13


@dataclass(frozen=True)
class Boxes:
    """V boxes to resample, and where they lie."""

    offset: Ints  # (V,) of its image, in bytes, in a tensor of all images' pixels, each (H, W, 3)
    width: Ints  # (V,) of its image
    axes: Ints  # (V, 2, 5) along x and along y, lines of `Axis`
    kept: Ints  # (V, 2) how many pixels are kept along x and along y
    place: Ints  # (V,) of its first pixel in the output
    stride: Ints  # (V,) from one line of the output to the next

    def __len__(self) -> int:
        return len(self.offset)

    def __getitem__(self, part: slice) -> Boxes:
        return Boxes(*(field[part] for field in vars(self).values()))

    @property
    def along_y(self) -> NDArray[np.bool_]:
        """Which ones Pillow resamples along y first: it rounds in between, so that shows."""
        (width, height), (new_width, new_height) = self.axes[:, :, 1].T, self.axes[:, :, 2].T
        tall = height - new_height > 2 * (width - new_width) if _PILLOW_13 else height > 100 * width
        return tall & (height > new_height)  # type: ignore[no-any-return]

    @property
    def between(self) -> Ints:
        """Bytes of each after its first pass, (V,)."""
        length, kept = self.axes[:, :, 1], self.kept
        return 3 * np.where(self.along_y, kept[:, 1] * length[:, 0], kept[:, 0] * length[:, 1])

    def taps(self, cubic: bool) -> int:
        """The most pixels that one new pixel is mixed from."""
        reach = np.maximum(1, self.axes[:, :, 1] / self.axes[:, :, 2]).max()
        return 2 * int(np.ceil(reach * (2 if cubic else 1))) + 1

    def chunks(self, max_bytes: int) -> Iterator[Boxes]:
        """Divide them so that what is kept between the passes fits into memory, at least one at a time."""
        ends = np.cumsum(self.between)
        start = 0
        while start < len(self):
            before = ends[start - 1] if start else 0
            fit = int(np.searchsorted(ends, before + max_bytes, side="right"))
            end = min(max(start + 1, fit), start + MOST)
            yield self[start:end]
            start = end


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy to the device without waiting for what it is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
