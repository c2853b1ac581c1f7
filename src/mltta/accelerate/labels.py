"""Encode C labels with B contexts, exactly and fast.

The context comes first and is the same for all labels. With a causal mask its keys and values are
therefore also the same, so it runs through the tower once per context, and each label adds only its
own tokens, without padding: 80 labels have about 290 token positions instead of 6,160. Positions after
the end-of-text token cannot be seen and are not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mltta.model.label_encoder import LabelEncoder, Prompts, PullBack, TextTower, pull

# Size of activations for a backward pass: above this the forward pass is recomputed in pieces.
GRAPH_BYTES = 384 * 2**20
# Up to this many tokens, all attend to all at once, with a mask.
DENSE_TOKENS = 640


@dataclass(frozen=True)
class _Chunk:
    """Labels encoded together, in groups with the same number of own tokens, one group after another."""

    labels: Tensor  # their indices
    tokens: list[Tensor]  # token ids (n, L) per group, each ending with the end-of-text token
    sees: Tensor | None  # (P+T, P+T) attention mask; with few tokens all attend at once


class PackedLabelEncoder(LabelEncoder):
    """Labels of a causal tower, with a single pass of their context; other towers and contexts are not optimized."""

    #: maximum number of tokens per chunk; None: as many as fit into GRAPH_BYTES
    most_tokens: int | None = None

    def __init__(self, tower: TextTower, prompts: Prompts, context: Tensor | None):
        super().__init__(tower, prompts, context)
        self._head = prompts.start + prompts.length  # P: tokens shared by all labels
        self._chunks = self._pack() if tower.causal else []

    @torch.no_grad()
    def __call__(self, contexts: Tensor) -> Tensor:
        return self._forward(contexts) if self._packs(contexts) else self.plain(contexts)

    def _packs(self, contexts: Tensor) -> bool:
        return bool(self._chunks) and contexts.ndim == 3

    def _forward(self, contexts: Tensor) -> Tensor:
        return self._in_order([self._encode(contexts, chunk) for chunk in self._chunks])

    @torch.enable_grad()  # independent of the caller's mode
    def linearize(self, contexts: Tensor) -> tuple[Tensor, PullBack]:
        if not self._packs(contexts):
            return super().linearize(contexts)
        leaf = contexts.detach().requires_grad_()
        tokens = sum(self._tokens_in(chunk.tokens) for chunk in self._chunks)
        kept = leaf.shape[0] * tokens <= self._token_budget()
        parts = [self._encode(leaf, chunk) for chunk in self._chunks] if kept else []

        @torch.enable_grad()
        def pull_back(gradients: Tensor) -> Tensor:
            total = torch.zeros((gradients.shape[0], *leaf.shape[1:]), device=leaf.device)
            for i, chunk in enumerate(self._chunks):
                part = parts[i] if kept else self._encode(leaf, chunk)
                total = total + pull(part, leaf, gradients[:, chunk.labels], retain=kept, batched=True)
            return total.detach()

        return self._in_order(parts).detach() if kept else self(contexts), pull_back

    def _encode(self, contexts: Tensor, chunk: _Chunk) -> Tensor:
        """Features (B, n, D) of a chunk's labels, in group order."""
        tower, batch, head = self._tower, contexts.shape[0], self._head
        start = tower.embed(self._tokens[:1, : self._prompts.start]).expand(batch, -1, -1)
        own = [tower.embed(ids) + tower.positions[head : head + ids.shape[1]] for ids in chunk.tokens]
        packed = torch.cat([x.flatten(0, 1) for x in own])  # (T, W)
        x = torch.cat(
            [torch.cat([start, contexts], 1) + tower.positions[:head], packed.expand(batch, -1, -1)], 1
        )
        shapes = [tuple(ids.shape) for ids in chunk.tokens]
        for i, block in enumerate(tower.blocks):
            x = tower.deepen(i, x)
            x = x + block.ls_1(attend(block.attn, block.ln_1(x), head, shapes, chunk.sees))
            x = x + block.ls_2(block.mlp(block.ln_2(x)))
        offset, ends = head, []
        for n, length in shapes:
            ends.append(offset + torch.arange(1, n + 1, device=x.device) * length - 1)
            offset += n * length
        return tower.project(x[:, torch.cat(ends)])

    def _in_order(self, parts: list[Tensor]) -> Tensor:
        return torch.cat(parts, dim=1)[:, self._back]

    def _pack(self) -> list[_Chunk]:
        """Group labels by their number of own tokens, and split the groups into chunks that fit into memory."""
        lengths = self._end + 1 - self._head
        most = min(self._token_budget(), self.most_tokens or 2**60)
        chunks: list[tuple[list[Tensor], list[Tensor]]] = [([], [])]
        for length in sorted(set(lengths.tolist())):
            for labels in (
                (lengths == length).nonzero().flatten().split(max(1, (most - self._head) // length))
            ):
                tokens = self._tokens[labels, self._head : self._head + length]
                if chunks[-1][0] and self._tokens_in([*chunks[-1][1], tokens]) > most:
                    chunks.append(([], []))
                chunks[-1][0].append(labels)
                chunks[-1][1].append(tokens)
        self._back = torch.cat([own for labels, _ in chunks for own in labels]).argsort()
        made = []
        for numbers, own in chunks:
            dense = self._tokens_in(own) <= DENSE_TOKENS
            mask = sees(self._head, [ids.shape for ids in own], self._end.device) if dense else None
            made.append(_Chunk(torch.cat(numbers), own, mask))
        return made

    def _tokens_in(self, tokens: list[Tensor]) -> int:
        return self._head + sum(ids.numel() for ids in tokens)

    def _token_budget(self) -> int:
        """Number of tokens whose activations (about 20 widths per layer) fit into GRAPH_BYTES."""
        return max(64, GRAPH_BYTES // (len(self._tower.blocks) * 20 * self._tower.width * 4))


def sees(head: int, shapes: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:
    """Attention mask (P+T, P+T): each token sees itself and earlier ones, in the head or in its own label."""
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
    """Causal attention in x (B, P+T, W): a shared head of P tokens, then groups of n labels with L tokens each.

    Args:
        seen: the mask of ``sees``, to attend all at once; None skips masked positions.
    """
    batch = x.shape[0]
    qkv = F.linear(x, attn.in_proj_weight, attn.in_proj_bias)
    qkv = qkv.view(batch, -1, 3, attn.num_heads, attn.head_dim)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, P+T, d)
    if seen is not None and not torch.is_grad_enabled():
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    elif seen is not None:  # written out to support batched gradients
        scores = (q * attn.head_dim**-0.5) @ k.transpose(-1, -2)
        out = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
    else:
        out = _attend_in_groups(q * attn.head_dim**-0.5, k, v, head, shapes)
    return attn.out_proj(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _attend_in_groups(
    q: Tensor, k: Tensor, v: Tensor, head: int, shapes: Sequence[tuple[int, ...]]
) -> Tensor:
    """Attention without computing masked positions, which are the vast majority in long label lists."""
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
