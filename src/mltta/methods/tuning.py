"""Tune a context at test time: AdamW with fresh optimizer state, independently for each image.

A method provides the rows to tune on (views or captions) and a loss of label features and rows. The rows may
themselves depend on the context, as with MaPLe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mltta.model.context_views import Views
from mltta.model.label_encoder import LabelEncoder

BETAS, EPS = (0.9, 0.999), 1e-8

#: a loss per image (B,) of label features (B, C, D) and rows (B, n, D)
Loss = Callable[[Tensor, Tensor], Tensor]


class Moments(NamedTuple):
    """AdamW's running means, and the number of steps they include."""

    first: Tensor
    second: Tensor
    step: int


def adamw(
    context: Tensor, gradient: Tensor, lr: float, weight_decay: float, moments: Moments | None
) -> tuple[Tensor, Moments]:
    """One AdamW step; the first step is ctx(1 - lr wd) - lr g / (|g| + eps) and needs no moments."""
    decayed = context * (1 - lr * weight_decay)
    if moments is None:
        state = Moments((1 - BETAS[0]) * gradient, (1 - BETAS[1]) * gradient.square(), 1)
        return decayed - lr * gradient / (gradient.abs() + EPS), state
    step = moments.step + 1
    first = BETAS[0] * moments.first + (1 - BETAS[0]) * gradient
    second = BETAS[1] * moments.second + (1 - BETAS[1]) * gradient.square()
    scale = (second / (1 - BETAS[1] ** step)).sqrt() + EPS
    return decayed - lr * first / (1 - BETAS[0] ** step) / scale, Moments(first, second, step)


def tune_context(
    text: LabelEncoder, views: Views, loss: Loss, *, lr: float, weight_decay: float = 0.01, steps: int = 1
) -> Tensor:
    """Contexts (B, M, W) after ``steps`` AdamW steps on a loss of label features and rows.

    The first step starts from the same context for every image, so its text features and their graph
    are computed once per label list. Each image then costs one backward pass.
    """
    features, pull_back = text.initial()
    images = len(views.features)
    features = features.expand(images, -1, -1)
    context = text.context.expand(images, *text.context.shape)
    moments: Moments | None = None
    for step in range(steps):
        if step:
            features, pull_back = text.linearize(context)
        labels = features.detach().requires_grad_()
        rows = (views(context) if step else views.features).detach().requires_grad_(views.read_context)
        with torch.enable_grad():
            total = loss(labels, rows).sum()
            to_labels, *to_rows = torch.autograd.grad(
                total, [labels, rows] if views.read_context else [labels]
            )
        gradient = pull_back(to_labels)
        if views.read_context:
            gradient = gradient + views.pull_back(context, to_rows[0])
        context, moments = adamw(context, gradient, lr, weight_decay, moments)
    return context
