"""Causal attention of many labels behind one shared prefix, in one sequence without padding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def sees(head: int, shapes: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:
    """Which token sees which (P+T, P+T): itself and those before it, in the head or in its own label."""
    owner = [torch.zeros(head, dtype=torch.long, device=device)]
    first = 1
    for n, length in shapes:
        owner.append(torch.arange(first, first + n, device=device).repeat_interleave(length))
        first += n
    own = torch.cat(owner)
    at = torch.arange(len(own), device=device)
    return ((own[:, None] == own) | (own == 0)) & (at[:, None] >= at)


def attend(
    attn: nn.MultiheadAttention, x: Tensor, head: int, shapes: Sequence[tuple[int, ...]], seen: Tensor | None
) -> Tensor:
    """Causal attention over a shared head of P tokens followed by groups of n labels with L tokens each.

    Args:
        attn: the tower's own layer.
        x: (B, P+T, W).
        shapes: (n, L) of each group.
        seen: what ``sees`` gives, to attend in one go; None leaves out what no token sees.
    """
    batch = x.shape[0]
    qkv = F.linear(x, attn.in_proj_weight, attn.in_proj_bias)
    qkv = qkv.view(batch, -1, 3, attn.num_heads, attn.head_dim)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, P+T, d)
    if seen is not None and not torch.is_grad_enabled():
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    elif seen is not None:  # spelled out, because gradients are taken in batches
        scores = (q * attn.head_dim**-0.5) @ k.transpose(-1, -2)
        out = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
    else:
        out = _attend_in_groups(q * attn.head_dim**-0.5, k, v, head, shapes)
    return attn.out_proj(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _attend_in_groups(
    q: Tensor, k: Tensor, v: Tensor, head: int, shapes: Sequence[tuple[int, ...]]
) -> Tensor:
    """The same without computing what no token sees: for long label lists, where that is nearly everything."""
    batch, heads = q.shape[:2]
    k_head, v_head = k[:, :, :head], v[:, :, :head]
    causal = torch.ones(head, head, dtype=torch.bool, device=q.device).triu(1)
    scores = (q[:, :, :head] @ k_head.transpose(-1, -2)).masked_fill(causal, -torch.inf)
    out = [scores.softmax(-1) @ v_head]
    offset = head
    for n, length in shapes:
        here = slice(offset, offset + n * length)
        q_own, k_own, v_own = (
            t[:, :, here].reshape(batch, heads, n, length, -1) for t in (q, k, v)
        )  # (B, H, n, L, d)
        to_head = (q[:, :, here] @ k_head.transpose(-1, -2)).view(batch, heads, n, length, head)
        causal = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        to_own = (q_own @ k_own.transpose(-1, -2)).masked_fill(causal, -torch.inf)
        weights = torch.cat([to_head, to_own], dim=-1).softmax(-1)
        from_head = weights[..., :head].flatten(2, 3) @ v_head
        out.append(from_head + (weights[..., head:] @ v_own).flatten(2, 3))
        offset += n * length
    return torch.cat(out, dim=2)
