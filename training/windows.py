"""Windows of the image tower's map: features of image parts from a single pass.

A location is the mean of 2 x 2 patches. The tower averages its patches after the last norm and projects them linearly,
so the projected mean of a window of locations is the feature of that part of the image, and the mean of all locations
is the feature of the whole.
"""

from __future__ import annotations

from open_clip.model import CLIP
from torch import Tensor
from torch.nn import functional as F

from mltta.model.vit import patch_tokens

CELL = 28  # pixels of a location


def pooled(maps: Tensor, window: int, stride: int = 1) -> Tensor:
    """Means (n, V, D) over the windows of maps (n, D, H, W); a window of 0, or one too large, uses the whole map."""
    h, w = (min(window or side, side) for side in maps.shape[-2:])
    return F.avg_pool2d(maps, (h, w), stride).flatten(2).transpose(1, 2)


def locations(model: CLIP, pixels: Tensor) -> Tensor:
    """The image tower's map (n, D, H, W) before projection; sides of the pixels are multiples of `CELL`."""
    visual = model.visual
    x, (height, width) = patch_tokens(visual, pixels)
    x = visual.ln_post(visual.transformer(visual.ln_pre(x))[:, 1:])
    return F.avg_pool2d(x.transpose(1, 2).unflatten(2, (height, width)), 2)


def projected(model: CLIP, means: Tensor) -> Tensor:
    """Unit features (..., E) of means of locations (..., D)."""
    return F.normalize((means @ model.visual.proj).float(), dim=-1)


def features(model: CLIP, maps: Tensor, window: int, stride: int = 1) -> Tensor:
    """Unit features (n, V, E) of the windows of a map."""
    return projected(model, pooled(maps, window, stride))
