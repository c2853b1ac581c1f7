"""Windows of a tower's locations: features of image parts from a single pass.

The image tower pools by averaging and its head is linear, so the projected mean of a window of locations is the
feature of that part of the image, and the mean of all locations is the feature of the whole.
"""

from __future__ import annotations

from open_clip.model import CLIP
from torch import Tensor
from torch.nn import functional as F


def pooled(maps: Tensor, window: int, stride: int = 1) -> Tensor:
    """Means (n, V, D) over the windows of maps (n, D, H, W); a window of 0, or one too large, uses the whole map."""
    h, w = (min(window or side, side) for side in maps.shape[-2:])
    return F.avg_pool2d(maps, (h, w), stride).flatten(2).transpose(1, 2)


def locations(model: CLIP, pixels: Tensor) -> Tensor:
    """The image tower's map (n, D, H, W) before pooling."""
    maps: Tensor = model.visual.trunk.forward_features(pixels)
    return maps


def features(model: CLIP, maps: Tensor, window: int, stride: int = 1) -> Tensor:
    """Unit features (n, V, E) of the windows of a map."""
    return F.normalize(model.visual.head(pooled(maps, window, stride)).float(), dim=-1)
