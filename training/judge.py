"""The frozen ImageNet classifier: runs once on every upscaled image, and its logits for any part are read off.

Its pooling is a mean and its last layer is linear, so the logits of a part are the mean of the logits at the
locations in it. Means over many locations are flatter than what the classifier was trained for; logits are sharpened.
"""

from __future__ import annotations

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
SAMPLE = 1024  # images on which directions are found


class Code(NamedTuple):
    """Logits are `mean + basis @ (step * code)`."""

    mean: Tensor  # (1000,)
    basis: Tensor  # (1000, rank)
    step: Tensor  # (rank,)


def classifier(path: Path, device: torch.device) -> nn.Module:
    """Load a classifier from a pack; its file is named after its timm model."""
    model: nn.Module = timm.create_model(path.stem, pretrained=False).eval().requires_grad_(False)
    state = {k: v.float() if v.is_floating_point() else v for k, v in load_file(path).items()}
    model.load_state_dict(state)
    return model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class Judge:
    """One or several classifiers, with their logits for every image.

    Logits are averaged over the classifiers. They are kept as bytes along the main directions of their variation, which
    takes an eighth of the memory. All images are processed before the first result, with a constant batch size.

    Args:
        pack: folder with the weights.
        images: all images (n, 3, s, s) as bytes.
        size: input size.
        sharper: factor for the averaged logits.
        rank: number of directions.
    """

    def __init__(self, pack: Path, images: Tensor, size: int, sharper: float = 1.0, rank: int = 256) -> None:
        self.images, self.size, self.sharper, self.rank = images, size, sharper, rank
        self.device = images.device
        self.models = [classifier(path, self.device) for path in sorted(pack.glob("tf_*.safetensors"))]
        if not self.models:
            raise FileNotFoundError(f"{pack} contains no classifier: rerun training.prepare")

    @torch.no_grad()
    def logits(self, rows: Tensor) -> Tensor:
        """Logits (n, 1000, cells, cells) of some images."""
        x = squashed(self.images[rows], self.size)
        return self.sharper * torch.stack([self._see(model, x) for model in self.models]).mean(0)

    @cached_property
    @torch.no_grad()
    def _code(self) -> Code:
        """The directions, found on a sample of the images."""
        sample = torch.linspace(
            0, len(self.images) - 1, min(SAMPLE, len(self.images)), device=self.device
        ).long()
        found = [self.logits(part).permute(0, 2, 3, 1).flatten(0, 2) for part in torch.split(sample, AT_ONCE)]
        logits = torch.cat(found)
        mean = logits.mean(0)
        covariance = (logits - mean).T @ (logits - mean) / len(logits)
        basis = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, : self.rank]  # (1000, rank)
        step = ((logits - mean) @ basis).abs().amax(0) / 127
        return Code(mean, basis, step.clamp(min=1e-6))

    @cached_property
    @torch.no_grad()
    def kept(self) -> Tensor:
        """The coded logits (n, rank, cells, cells) of all images, computed on first use."""
        mean, basis, step = self._code
        found = torch.empty(0)
        for part in even_parts(len(self.images), AT_ONCE, self.device):
            own = self.logits(part)
            if not len(found):
                shape = (len(self.images), basis.shape[1], *own.shape[2:])
                found = torch.empty(shape, dtype=torch.int8, device=self.device)
            coded = torch.einsum("nchw,cr->nrhw", own - mean[:, None, None], basis) / step[:, None, None]
            found[part] = coded.round().clamp(-127, 127).to(torch.int8)
        return found

    def _see(self, model: nn.Module, x: Tensor) -> Tensor:
        """Logits (n, 1000, cells, cells) at the grid's locations."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            maps = model.forward_features(x)  # type: ignore[operator]
        last: nn.Linear = model.classifier  # type: ignore[assignment]
        return F.conv2d(maps.float(), last.weight[:, :, None, None], last.bias)

    def __call__(self, rows: Rows, boxes: Tensor, grid: tuple[int, int]) -> Tensor:
        """Logits (n, 1000, *grid) of crops of images, on a grid of locations.

        Args:
            boxes: (n, 2, 3) locations of the crops, as returned by `images.crops`.
        """
        own = self.kept[torch.from_numpy(rows).to(self.device)].float()
        mean, basis, step = self._code
        where = F.affine_grid(boxes, [len(rows), basis.shape[1], *grid], align_corners=False)
        read = F.grid_sample(own, where, "bilinear", padding_mode="border", align_corners=False)
        return torch.einsum("nrhw,cr->nchw", read, basis * step) + mean[:, None, None]


def in_windows(logits: Tensor, window: int, stride: int = 1) -> Tensor:
    """Probabilities (n, V, classes) in the windows of a logit map; a window of 0 is the whole image."""
    return pooled(logits, window, stride).softmax(-1)
