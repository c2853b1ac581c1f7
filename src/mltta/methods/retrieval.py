"""How many labels an image's views are likely to show, read off the nearest captions: the k of bound entropy."""

from __future__ import annotations

from torch import Tensor

from mltta.captions.base import LabelledCaptions


def weak_label_counts(captions: LabelledCaptions, views: Tensor) -> Tensor:
    """The size (..., N) of each view's weak label set, which is that of the caption nearest to it (..., N, D)."""
    return captions.k(captions.nearest(views, 1)[..., 0])
