"""Bound entropy minimization: pure functions of logits, each with its equation in the paper.

Shapes: ``logits`` is (..., R, C): R rows (views or captions of one image) over C labels. Leading
dimensions are images. ``rows`` is a boolean (..., R) mask of the rows that take part.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "marginal"]


def bind_labels(logits: Tensor, k: Tensor) -> Tensor:
    """Bind each row's k highest logits to its maximum, leaving gradients unchanged (Algorithm 1, Eq. 6).

    A label is bound if fewer than k labels score strictly higher. Tied labels are therefore bound
    together, independent of label order. k = 0 binds nothing, k > C binds all.

    >>> bind_labels(torch.tensor([0.9, 0.7, 0.3]), torch.tensor(2))
    tensor([0.9000, 0.9000, 0.3000])
    """
    value = logits.detach()
    ordered = value.sort(dim=-1, descending=True).values
    last = k.long().clamp(1, logits.shape[-1]).unsqueeze(-1) - 1
    bound = (value >= ordered.gather(-1, last)) & (k > 0).unsqueeze(-1)
    # logits - value is exactly zero and carries the gradient: the paper's stop-gradient (m - s) + s.
    return torch.where(bound, ordered[..., :1] + (logits - value), logits)


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of each row's softmax (Eq. 1)."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1)


def select_confident(row_entropy: Tensor, ratio: float, valid: Tensor | None = None) -> Tensor:
    """Mark the floor(ratio * n) rows of lowest entropy, at least one (Sec. 3.3.2).

    The released code keeps nothing if floor(ratio * n) is 0, and its loss is NaN; here the most confident
    row stays. Rows that are not ``valid`` do not count; an image without valid rows keeps none.
    """
    if valid is None:
        keep_all = max(1, math.floor(row_entropy.shape[-1] * ratio))
        best = row_entropy.detach().argsort(dim=-1, stable=True)[..., :keep_all]
        return torch.zeros_like(row_entropy, dtype=torch.bool).scatter_(-1, best, True)
    n = valid.sum(dim=-1, keepdim=True)
    keep = (n.double() * ratio).floor().clamp(min=1)
    order = row_entropy.detach().masked_fill(~valid, torch.inf).argsort(dim=-1, stable=True)
    rank = torch.empty_like(order).scatter_(
        -1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order)
    )
    return (rank < keep) & valid


def mean_entropy(logits: Tensor, rows: Tensor) -> Tensor:
    """Mean of the selected rows' entropies (Eq. 7, the paper's objective); 0 if no row is selected."""
    return _mean_of(entropy(logits), rows)


def _mean_of(row_loss: Tensor, rows: Tensor) -> Tensor:
    """Mean (...,) of the selected rows' losses (..., R)."""
    return torch.where(rows, row_loss, 0.0).sum(dim=-1) / rows.sum(dim=-1).clamp(min=1)


def marginal_entropy(logits: Tensor, rows: Tensor) -> Tensor:
    """Entropy of the selected rows' mean softmax (TPT's and the released code's objective)."""
    log_p = logits.log_softmax(dim=-1)
    empty = ~rows.any(dim=-1, keepdim=True)
    shut = ~(rows | empty)  # keeps images without rows finite; zeroed below
    log_mean = log_p.masked_fill(shut.unsqueeze(-1), -torch.inf).logsumexp(dim=-2)
    log_mean = log_mean - rows.sum(dim=-1, keepdim=True).clamp(min=1).to(logits.dtype).log()
    log_mean = log_mean.clamp(min=torch.finfo(logits.dtype).min)
    return torch.where(empty.squeeze(-1), 0.0, -(log_mean.exp() * log_mean).sum(dim=-1))


def bound_entropy(
    logits: Tensor,
    k: Tensor | None,
    *,
    ratio: float = 0.1,
    reduction: Reduction = "mean",
    select_on: Literal["bound", "raw"] = "bound",
    valid: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """The BEM objective of one branch, per image (Eq. 7-8); ``k=None`` gives plain entropy minimization.

    Args:
        logits: (..., R, C) before binding.
        k: (..., R) size of each row's label set, or None to bind nothing.
        ratio: fraction of rows kept by confidence selection.
        reduction: "mean" of row entropies (the paper) or "marginal" entropy (the released code).
        select_on: compute confidence from the bound logits (default, and released code) or the raw ones.
        valid: (..., R) rows that exist; the rest is padding.
        rows: (..., R) an earlier selection, used instead of selecting again.
    """
    bound = logits if k is None else bind_labels(logits, k)
    own = entropy(bound)
    if rows is None:
        rows = select_confident(own if select_on == "bound" else entropy(logits), ratio, valid)
    return _mean_of(own, rows) if reduction == "mean" else marginal_entropy(bound, rows)


def label_set_bce(logits: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """Binary cross-entropy of the selected rows against their weak or strong label sets (Table 6).

    Args:
        logits: (..., R, C).
        targets: (..., R, C) multi-hot label sets of the rows.
        rows: (..., R) the confident rows.
    """
    loss = F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none").mean(dim=-1)
    return _mean_of(loss, rows)
