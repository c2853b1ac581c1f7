"""The derivative of the labels' features with respect to the context, kept: a constant of model, labels, template.

Every image's first step starts from the same context, so its gradient is one matrix product with this constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

if TYPE_CHECKING:
    from mltta.model.label_encoder import LabelEncoder

# It pays from so many images on, as working it out costs as much as adapting about that many.
IMAGES = 512
# A pass of its making takes about this much beside.
BYTES = 2 * 2**30


def label_jacobian(encoder: LabelEncoder, max_bytes: int = BYTES) -> Tensor:
    """Matrix (C·D, M·W): row (c, d) is the gradient of label c's feature d at the initial context.

    Each label gets a copy of the context, so that one backward pass gives a row of every label: D passes in all.
    """
    at_once = max(1, min(16, max_bytes // (16 * encoder.context.shape[1] * encoder.plain_tokens)))
    context = encoder.context.expand(len(encoder), -1, -1)[None].clone().requires_grad_()  # (1, C, M, W)
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):  # the kernel that can be differentiated in batches
        features = encoder.plain(context)  # (1, C, D)
        labels, dim = features.shape[1:]
        rows = torch.empty(labels, dim, encoder.context.numel(), device=features.device)
        for start in range(0, dim, at_once):
            n = min(at_once, dim - start)
            basis = torch.zeros(n, 1, labels, dim, device=features.device)
            basis[torch.arange(n), :, :, start + torch.arange(n)] = 1
            (found,) = torch.autograd.grad(features, context, basis, is_grads_batched=True, retain_graph=True)
            rows[:, start : start + n] = found[:, 0].flatten(2).transpose(0, 1)
    return rows.flatten(0, 1)


def jacobian_pays(encoder: LabelEncoder, images: int) -> bool:
    """Whether to keep the Jacobian: on a GPU, in long runs, where it fits into a quarter of the free memory."""
    device = encoder.context.device
    if device.type != "cuda" or images < IMAGES:
        return False
    size = 4 * encoder.features.numel() * encoder.context.numel()
    return size <= torch.cuda.mem_get_info(device)[0] // 4
