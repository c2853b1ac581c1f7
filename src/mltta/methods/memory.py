"""Memory of online methods: images kept per label, their prototypes, and one optimizer step on residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.methods.base import State

#: AdamW's epsilon in the releases of DPE and ReTA; it damps steps for small gradients
EPS = 1e-3
#: temperature for comparing prototypes with texts
ALIGN = 0.01


def empty_memory(memory: str, labels: int, capacity: int, **slot: Tensor) -> State:
    """Empty slots (C, S, ...) for ``remember``, shaped like ``slot``; empty slots have infinite entropy."""
    doubt = torch.full((), torch.inf, device=next(iter(slot.values())).device)
    return {
        f"{memory}_{name}": item.expand(labels, capacity, *item.shape).clone()
        for name, item in {"entropy": doubt, **slot}.items()
    }


def remember(state: State, memory: str, label: int, entropy: float, **items: Tensor) -> None:
    """Keep an image in an empty slot of its label, or replace the least confident one if it is more confident."""
    held = state[f"{memory}_entropy"][label]  # (S,)
    slot = int(held.argmax())  # empty slots come first
    if entropy < held[slot]:
        held[slot] = entropy
        for name, item in items.items():
            state[f"{memory}_{name}"][label, slot] = item


def prototypes(state: State, memory: str) -> tuple[Tensor, Tensor]:
    """Mean features (C, D) cached for each label, and a mask (C,) of labels with any."""
    filled = state[f"{memory}_entropy"].isfinite()  # (C, S)
    count = filled.sum(dim=1, keepdim=True)
    return (state[f"{memory}_key"] * filled[..., None]).sum(dim=1) / count.clamp(min=1), count[:, 0] > 0


def likeness(rows: Tensor, keys: Tensor, held: Tensor, alpha: float, beta: float) -> Tensor:
    """Contribution of prototypes (C, D) to the logits (..., C) of rows (..., D); zero for labels without one."""
    return alpha * torch.where(held, (-beta * (1 - rows @ keys.T)).exp(), 0.0)


def align(keys: Tensor, text: Tensor, held: Tensor) -> Tensor:
    """Contrastive loss between prototypes (C, D) and texts (C, D), over all labels with a prototype."""
    logits = keys[held] @ text[held].T / ALIGN
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def stepped(loss: Callable[..., Tensor], shapes: Sequence[Tensor], lr: float) -> list[Tensor]:
    """Residuals after one AdamW step from zero, where weight decay has no effect: -lr g / (|g| + eps)."""
    leaves = [torch.zeros_like(one).requires_grad_() for one in shapes]
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss(*leaves), leaves)
    return [-lr * g / (g.abs() + EPS) for g in gradients]
