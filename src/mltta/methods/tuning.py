"""Tune a context at test time: AdamW from zero state, every image on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mltta.model.label_encoder import LabelEncoder

if TYPE_CHECKING:
    from mltta.model.maple import PromptedViews

BETAS, EPS = (0.9, 0.999), 1e-8


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
    text: LabelEncoder,
    loss: Callable[..., Tensor],
    images: int,
    *,
    lr: float,
    weight_decay: float = 0.01,
    steps: int = 1,
    views: PromptedViews | None = None,
) -> Tensor:
    """Contexts (B, M, W) after ``steps`` of AdamW on a loss of the labels' features.

    The first step starts from the same context for every image, so its text features and the graph
    behind them are computed once per label list; an image then costs one backward pass.

    Args:
        text: the label encoder.
        loss: maps label features (B, C, D) to one loss per image (B,); with views, label and view features (B, N, D).
        images: B.
        views: what the loss is of besides the labels, where the image tower reads the context too (MaPLe).
    """
    features, pull_back = text.initial()
    features = features.expand(images, -1, -1)
    context = text.context.expand(images, *text.context.shape)
    moments: Moments | None = None
    for step in range(steps):
        if step:
            features, pull_back = text.linearize(context)
        leaves = [features.detach().requires_grad_()]
        if views is not None:
            leaves.append((views(context) if step else views.features).detach().requires_grad_())
        with torch.enable_grad():
            to_text, *to_views = torch.autograd.grad(loss(*leaves).sum(), leaves)
        gradient = pull_back(to_text)
        if views is not None:
            gradient = gradient + views.pull_back(context, to_views[0])
        context, moments = adamw(context, gradient, lr, weight_decay, moments)
    return context
