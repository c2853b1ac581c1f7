"""The frozen ImageNet classifier: runs once on every upscaled image, and its logits for any part are read off.

Its pooling is a mean and its last layer is linear, so the logits of a part are the mean of the logits at the
locations in it. Upscaled images name more of their content than at the training size, but the mean over a large map is
nearly uniform over all classes. Whole images are therefore judged on a smaller map than windows, and both with
sharpened logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from training.images import even_parts, squashed
from training.material import Rows
from training.windows import pooled

CLASSES = 1000
AT_ONCE = 64  # batch size
CELL = 32  # stride of a map in pixels


def classifier(path: Path, device: torch.device) -> nn.Module:
    """Load a classifier from a pack; its file is named after its timm model."""
    model: nn.Module = timm.create_model(path.stem, pretrained=False).eval().requires_grad_(False)
    state = {k: v.float() if v.is_floating_point() else v for k, v in load_file(path).items()}
    model.load_state_dict(state)
    return model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class Judges(NamedTuple):
    """The judges of whole images and of windows."""

    whole: Judge
    windows: Judge


class Judge:
    """One or several classifiers, with their logits for every image.

    Logits are averaged over classifiers and input sizes. All images are processed before the first result, with a
    constant batch size.

    Args:
        pack: folder with the weights.
        images: all images (n, 3, s, s) as bytes.
        sizes: input sizes; the first determines the grid.
        sharper: factor for the averaged logits.
    """

    def __init__(self, pack: Path, images: Tensor, sizes: Sequence[int], sharper: float = 1.0) -> None:
        self.images, self.sizes, self.sharper, self.device = images, sizes, sharper, images.device
        self.models = [classifier(path, self.device) for path in sorted(pack.glob("tf_*.safetensors"))]
        if not self.models:
            raise FileNotFoundError(f"{pack} contains no classifier: rerun training.prepare")
        self.cells = sizes[0] // CELL

    @cached_property
    @torch.no_grad()
    def logits(self) -> Tensor:
        """Logits of all images (n, 1000, cells, cells), computed on first use."""
        shape = (len(self.images), CLASSES, self.cells, self.cells)
        logits = torch.empty(shape, dtype=torch.half, device=self.device)
        for part in even_parts(len(self.images), AT_ONCE, self.device):
            views = [squashed(self.images[part], size) for size in self.sizes]
            seen = [self._see(model, x) for model in self.models for x in views]
            logits[part] = (self.sharper * torch.stack(seen).mean(0)).half()
        return logits

    def _see(self, model: nn.Module, x: Tensor) -> Tensor:
        """Logits (n, 1000, cells, cells) at the grid's locations."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            maps = model.forward_features(x)  # type: ignore[operator]
        maps = F.adaptive_avg_pool2d(maps.float(), self.cells)
        last: nn.Linear = model.classifier  # type: ignore[assignment]
        return F.conv2d(maps, last.weight[:, :, None, None], last.bias)

    @torch.no_grad()
    def now(self, pixels: Tensor, window: int, stride: int = 1) -> Tensor:
        """Probabilities (n * V, 1000) in the windows of new images, at their given size."""
        found = []
        for model in self.models:
            maps = pooled(model.forward_features(pixels), window, stride)  # type: ignore[operator]
            found.append(model.classifier(maps).float())  # type: ignore[operator]
        sharper = self.sharper if window else 1.0
        return (sharper * torch.stack(found).mean(0)).softmax(-1).flatten(0, 1)

    def __call__(self, rows: Rows, boxes: Tensor, grid: tuple[int, int]) -> Tensor:
        """Logits (n, 1000, *grid) of crops of images, on a grid of locations.

        Args:
            boxes: (n, 2, 3) locations of the crops, as returned by `images.crops`.
        """
        own = self.logits[torch.from_numpy(rows).to(self.device)].float()
        where = F.affine_grid(boxes, [len(rows), CLASSES, *grid], align_corners=False)
        return F.grid_sample(own, where, "bilinear", padding_mode="border", align_corners=False)


def in_windows(logits: Tensor, window: int, stride: int = 1) -> Tensor:
    """Probabilities (n, V, classes) in the windows of a logit map; a window of 0 is the whole image."""
    return pooled(logits, window, stride).softmax(-1)
