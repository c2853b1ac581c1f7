"""What online methods keep of images under each label, prototypes of it, and one step on what is added to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.methods.base import State

#: AdamW's epsilon in the releases of DPE and ReTA: small gradients make small steps
EPS = 1e-3
#: the temperature at which prototypes and texts are compared
ALIGN = 0.01


def empty_memory(memory: str, labels: int, capacity: int, **slot: Tensor) -> State:
    """Slots (C, S, ...) for what ``remember`` keeps, like the empty ``slot``, whose entropy is infinite."""
    doubt = torch.full((), torch.inf, device=next(iter(slot.values())).device)
    return {
        f"{memory}_{name}": item.expand(labels, capacity, *item.shape).clone()
        for name, item in {"entropy": doubt, **slot}.items()
    }


def remember(state: State, memory: str, label: int, entropy: float, **items: Tensor) -> None:
    """Keep an image in an empty slot of its label, or else in place of the least confident if it is surer."""
    held = state[f"{memory}_entropy"][label]  # (S,)
    slot = int(held.argmax())  # an empty slot first
    if entropy < held[slot]:
        held[slot] = entropy
        for name, item in items.items():
            state[f"{memory}_{name}"][label, slot] = item


def prototypes(state: State, memory: str) -> tuple[Tensor, Tensor]:
    """The mean (C, D) of what a cache holds of each label, and which labels (C,) it holds anything of."""
    filled = state[f"{memory}_entropy"].isfinite()  # (C, S)
    count = filled.sum(dim=1, keepdim=True)
    return (state[f"{memory}_key"] * filled[..., None]).sum(dim=1) / count.clamp(min=1), count[:, 0] > 0


def likeness(rows: Tensor, keys: Tensor, held: Tensor, alpha: float, beta: float) -> Tensor:
    """What prototypes (C, D) add to the logits (..., C) of rows (..., D); nothing where none is held."""
    return alpha * torch.where(held, (-beta * (1 - rows @ keys.T)).exp(), 0.0)


def align(keys: Tensor, text: Tensor, held: Tensor) -> Tensor:
    """How far prototypes (C, D) are from knowing their own text (C, D) among the texts of all labels held."""
    logits = keys[held] @ text[held].T / ALIGN
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def stepped(loss: Callable[..., Tensor], shapes: Sequence[Tensor], lr: float) -> list[Tensor]:
    """Residuals after one AdamW step from zero, where decay does nothing: -lr g / (|g| + eps)."""
    leaves = [torch.zeros_like(one).requires_grad_() for one in shapes]
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss(*leaves), leaves)
    return [-lr * g / (g.abs() + EPS) for g in gradients]
