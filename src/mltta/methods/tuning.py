"""Tune a context at test time: AdamW from zero state, every image on its own.

A method says what it tunes on, its views or other rows, and by which loss of label features and rows. Whether the
rows change with the context, as under MaPLe, is the rows' own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from mltta.model.context_views import Views
from mltta.model.label_encoder import LabelEncoder

BETAS, EPS = (0.9, 0.999), 1e-8

#: one loss an image (B,) of label features (B, C, D) and rows (B, n, D)
Loss = Callable[[Tensor, Tensor], Tensor]


class Moments(NamedTuple):
    """AdamW's running means and how many steps they hold."""

    first: Tensor
    second: Tensor
    step: int


def adamw(
    context: Tensor, gradient: Tensor, lr: float, weight_decay: float, moments: Moments | None
) -> tuple[Tensor, Moments]:
    """One AdamW step; from zero state it is ctx(1 - lr wd) - lr g / (|g| + eps), without any memory."""
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
    """Contexts (B, M, W) after ``steps`` of AdamW on a loss of the labels and the views.

    The first step starts from the same context for every image, so its text features and the graph
    behind them are computed once per label list; an image then costs one backward pass.
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
