"""Encode C labels under B contexts, exactly and fast.

The context comes first and is the same for all labels. Under a causal mask its keys and values are
then the same too, so it runs through the tower once per context, and each label adds only its own
tokens, without padding: 80 labels are about 290 token positions instead of 6,160. Positions after the
end-of-text token cannot be seen and are not computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.accelerate.prefix_attention import attend, sees
from mltta.model.label_encoder import LabelEncoder, PullBack
from mltta.model.prompts import Prompts
from mltta.model.text_tower import TextTower

# Activations kept for a backward pass: above this the forward is redone in pieces instead of kept.
GRAPH_BYTES = 384 * 2**20
# Up to so many tokens, all of them attend to all at once and a mask says which count.
DENSE_TOKENS = 640


@dataclass(frozen=True)
class _Group:
    """Labels whose own tokens are equally many; they lie one after another in the packed sequence."""

    labels: Tensor  # (n,) label numbers
    tokens: Tensor  # (n, L) token ids, the last of each the end-of-text token


@dataclass(frozen=True)
class _Chunk:
    """Groups that are encoded together; with few tokens they attend in one go, under a mask."""

    groups: list[_Group]
    sees: Tensor | None  # (P+T, P+T) which token sees which


class PackedLabelEncoder(LabelEncoder):
    """Labels of a causal tower, their context run once; towers and contexts of another kind take the plain path."""

    #: tokens of a chunk at most; None: as many as fit into GRAPH_BYTES
    most_tokens: int | None = None

    def __init__(
        self, tower: TextTower, prompts: Prompts, context: Tensor | None, features: Tensor | None = None
    ):
        super().__init__(tower, prompts, context, features)
        self._chunks = self._pack() if features is None and tower.causal else []

    @torch.no_grad()
    def __call__(self, contexts: Tensor) -> Tensor:
        return self._forward(contexts) if self._packs(contexts) else self.plain(contexts)

    def _packs(self, contexts: Tensor) -> bool:
        return bool(self._chunks) and contexts.ndim == 3

    def _forward(self, contexts: Tensor) -> Tensor:
        return self._scatter([self._encode(contexts, chunk) for chunk in self._chunks])

    @torch.enable_grad()  # whatever the caller is doing
    def linearize(self, contexts: Tensor) -> tuple[Tensor, PullBack]:
        if not self._packs(contexts):
            return super().linearize(contexts)
        leaf = contexts.detach().requires_grad_()
        owners = [torch.cat([group.labels for group in chunk.groups]) for chunk in self._chunks]
        tokens = sum(self._tokens_in(chunk.groups) for chunk in self._chunks)
        if leaf.shape[0] * tokens <= self._token_budget():
            parts = [self._encode(leaf, chunk) for chunk in self._chunks]

            def pull_kept(gradients: Tensor) -> Tensor:
                pulled = [
                    _pull(part, leaf, gradients[:, own], retain=True)
                    for part, own in zip(parts, owners, strict=True)
                ]
                return torch.stack(pulled).sum(dim=0)

            return self._scatter(parts).detach(), pull_kept

        @torch.enable_grad()
        def pull_again(gradients: Tensor) -> Tensor:
            total = torch.zeros((gradients.shape[0], *leaf.shape[1:]), device=leaf.device)
            for chunk, own in zip(self._chunks, owners, strict=True):
                total = total + _pull(self._encode(leaf, chunk), leaf, gradients[:, own], retain=False)
            return total.detach()

        return self(contexts), pull_again

    def _encode(self, contexts: Tensor, chunk: _Chunk) -> Tensor:
        """Features (B, n, D) of a chunk's labels, in the groups' order."""
        tower, batch, groups = self._tower, contexts.shape[0], chunk.groups
        head = self._head  # P: tokens shared by all labels
        start = tower.embed(self._tokens[:1, : self._prompts.start]).expand(batch, -1, -1)
        own = [tower.embed(g.tokens) + tower.positions[head : head + g.tokens.shape[1]] for g in groups]
        packed = torch.cat([x.flatten(0, 1) for x in own])  # (T, W)
        x = torch.cat(
            [torch.cat([start, contexts], 1) + tower.positions[:head], packed.expand(batch, -1, -1)], 1
        )
        shapes = [tuple(g.tokens.shape) for g in groups]
        for i, block in enumerate(tower.blocks):
            x = tower.deepen(i, x)
            x = x + block.ls_1(attend(block.attn, block.ln_1(x), head, shapes, chunk.sees))
            x = x + block.ls_2(block.mlp(block.ln_2(x)))
        offset, ends = head, []
        for n, length in shapes:
            ends.append(offset + torch.arange(1, n + 1, device=x.device) * length - 1)
            offset += n * length
        return tower.project(x[:, torch.cat(ends)])

    def _scatter(self, parts: list[Tensor]) -> Tensor:
        """Put chunk features back into the order of the labels."""
        return torch.cat(parts, dim=1)[:, self._back]

    def _pack(self) -> list[_Chunk]:
        """Group labels by the number of their own tokens, and cut the groups into chunks that fit memory."""
        lengths = self._end + 1 - self._head
        most = min(self._token_budget(), self.most_tokens or 2**60)
        groups: list[_Group] = []
        for length in sorted(set(lengths.tolist())):
            labels = (lengths == length).nonzero().flatten()
            for part in labels.split(max(1, (most - self._head) // length)):
                groups.append(_Group(part, self._tokens[part, self._head : self._head + length]))
        chunks: list[list[_Group]] = [[]]
        for group in groups:
            if chunks[-1] and self._tokens_in([*chunks[-1], group]) > most:
                chunks.append([])
            chunks[-1].append(group)
        order = torch.cat([group.labels for chunk in chunks for group in chunk])
        self._back = order.argsort()
        return [_Chunk(chunk, self._sees(chunk)) for chunk in chunks]

    def _sees(self, groups: list[_Group]) -> Tensor | None:
        if self._tokens_in(groups) > DENSE_TOKENS:
            return None
        return sees(self._head, [group.tokens.shape for group in groups], self._tokens.device)

    @property
    def _head(self) -> int:
        return self._prompts.start + self._prompts.length

    def _tokens_in(self, groups: list[_Group]) -> int:
        return self._head + sum(g.tokens.numel() for g in groups)

    def _token_budget(self) -> int:
        """Tokens whose activations (about 20 widths a layer) fit in GRAPH_BYTES."""
        return max(64, GRAPH_BYTES // (len(self._tower.blocks) * 20 * self._tower.width * 4))


def _pull(features: Tensor, leaf: Tensor, gradients: Tensor, retain: bool) -> Tensor:
    """Vector-Jacobian products of features (1 or G, C, D) for gradients (G, C, D), all in one backward pass."""
    if features.shape[0] == gradients.shape[0]:
        return torch.autograd.grad(features, leaf, gradients, retain_graph=retain)[0]
    (pulled,) = torch.autograd.grad(
        features, leaf, gradients[:, None], retain_graph=retain, is_grads_batched=True
    )
    return pulled[:, 0]
