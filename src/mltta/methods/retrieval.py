"""Which labels, and how many, an image's views are likely to show, read off the captions nearest to them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions

#: whose labels make a view's weak label set: the nearest caption's (paper), or those of several captions combined
WeakLabels = Literal["nearest", "vote", "weighted", "union", "intersection"]


def weak_label_counts(captions: LabelledCaptions, views: Tensor) -> Tensor:
    """The size (..., N) of each view's weak label set, which is that of the caption nearest to it (..., N, D)."""
    return captions.k(captions.nearest(views, 1)[..., 0])


def combined_labels(
    captions: LabelledCaptions, views: Tensor, found: Tensor, how: WeakLabels, scale: float
) -> Tensor:
    """Weak label sets (..., N, C), zeros and ones, of views (..., N, D) from their captions (..., N, K), nearest first.

    "vote" takes what at least half of the captions name, "weighted" what at least half of their similarities at the
    model's temperature name, "union" what any and "intersection" what all of them name. Where that leaves nothing,
    the nearest caption decides.
    """
    named = captions.multi_hot(found)  # (..., N, K, C)
    nearest = named[..., 0, :]
    if how == "nearest":
        return nearest
    if how == "union":
        return named.amax(dim=-2)
    if how == "intersection":
        labels = named.amin(dim=-2)
    else:
        share = named.mean(dim=-2)
        if how == "weighted":
            similarity = (views.unsqueeze(-2) * captions.embeddings[found]).sum(dim=-1)  # (..., N, K)
            share = ((scale * similarity).softmax(dim=-1).unsqueeze(-2) @ named).squeeze(-2)
        labels = (share >= 0.5).to(named.dtype)
    return torch.where(labels.any(dim=-1, keepdim=True), labels, nearest)
