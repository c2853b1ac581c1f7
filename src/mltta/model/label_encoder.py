"""Encode C labels under B contexts, exactly and fast.

The context comes first and is the same for all labels. Under a causal mask its keys and values are
then the same too, so it runs through the tower once per context, and each label adds only its own
tokens, without padding: 80 labels are about 290 token positions instead of 6,160. Positions after the
end-of-text token cannot be seen and are not computed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.accelerate.graph import CudaGraph, tensor_cores
from mltta.accelerate.jacobian import jacobian_pays, label_jacobian
from mltta.accelerate.prefix_attention import attend, sees
from mltta.errors import ConfigError
from mltta.model.prompts import Prompts
from mltta.model.text_tower import TextTower

log = logging.getLogger("mltta")
# Activations kept for a backward pass: above this the forward is redone in pieces instead of kept.
GRAPH_BYTES = 384 * 2**20
# Up to so many tokens, all of them attend to all at once and a mask says which count. On a GPU more are divided: ten
# times as many labels then take ten times as long, not a hundred.
DENSE_TOKENS, GPU_TOKENS = 640, 320
# Up to so many contexts, a forward pass on a GPU is replayed from a CUDA graph.
GRAPHED_CONTEXTS = 4


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


class LabelEncoder:
    """Text features of a label list as a function of the context.

    ``encoder(contexts)`` takes contexts (B, M, W), shared by all labels, or (B, C, M, W), one per label,
    and returns unit features (B, C, D). ``encoder.features`` are those of the initial context.
    """

    #: take first-step gradients from a kept Jacobian: None decides by itself
    jacobian: bool | None = None

    def __init__(
        self, tower: TextTower, prompts: Prompts, context: Tensor | None, features: Tensor | None = None
    ):
        """Args:
        tower: the backbone's text tower.
        prompts: the labels laid out as tokens.
        context: (M, W) initial context vectors, or (C, M, W), one a label; None for the template's own words.
        features: (C, D) ready features, for a tower whose context cannot be tuned.
        """
        self._tower = tower
        self._prompts = prompts
        self._initial: tuple[Tensor, Callable[[Tensor], Tensor]] | None = None
        self._jacobian: Tensor | None = None
        self._pulled = 0
        self._graphs: dict[int, CudaGraph] = {}
        self._features = features
        self.tunable = features is None and prompts.length > 0
        if features is not None:
            return
        device = tower.positions.device
        self._tokens = prompts.tokens.to(device)
        self._end = prompts.end.to(device)
        if context is None:
            words = self._tokens[0, prompts.start : prompts.start + prompts.length]
            context = tower.embed(words)
        if context.shape[-2:] != (prompts.length, tower.width) or context.shape[:-2] not in (
            (),
            (len(self),),
        ):
            raise ConfigError(
                f"context vectors are {tuple(context.shape)}, but this text tower takes "
                f"({prompts.length}, {tower.width})"
            )
        self.context = context.detach().to(device, torch.float32)
        self._chunks = self._pack() if tower.causal else []

    def __len__(self) -> int:
        return len(self._prompts.texts)

    @property
    def features(self) -> Tensor:
        """(C, D) unit features under the initial context, computed once, without a graph behind them."""
        if self._features is None:
            self._features = self(self.context[None])[0]
        return self._features

    def initial(self) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """``linearize`` at the initial context, kept: every image's first step starts from it."""
        if self._initial is None:
            self._initial = self.linearize(self.context[None])
        return self._initial[0], self._pull_initial

    def _pull_initial(self, gradients: Tensor) -> Tensor:
        assert self._initial is not None
        self._pulled += gradients.shape[0]
        shared = self.context.ndim == 2  # by all labels
        keep = jacobian_pays(self, self._pulled) if self.jacobian is None else self.jacobian
        if self._jacobian is None and shared and keep:
            self._jacobian = label_jacobian(self)
            log.debug("first-step gradients come from a kept Jacobian, %.1f GB", self._jacobian.nbytes / 1e9)
        if self._jacobian is None:
            return self._initial[1](gradients)
        with tensor_cores():
            return (gradients.flatten(1) @ self._jacobian).view(-1, *self.context.shape)

    @torch.no_grad()
    def __call__(self, contexts: Tensor) -> Tensor:
        if not self._chunks or contexts.ndim == 4:
            return self.plain(contexts)
        if contexts.is_cuda and contexts.shape[0] <= GRAPHED_CONTEXTS:
            # a few contexts take less time to compute than to launch
            graphed = self._graphs.get(contexts.shape[0]) or CudaGraph(self._forward, contexts)
            self._graphs[contexts.shape[0]] = graphed
            return graphed(contexts)
        return self._forward(contexts)

    def _forward(self, contexts: Tensor) -> Tensor:
        with tensor_cores():
            return self._all_chunks(contexts)

    def _all_chunks(self, contexts: Tensor) -> Tensor:
        return self._scatter([self._encode(contexts, chunk) for chunk in self._chunks])

    @torch.enable_grad()  # whatever the caller is doing
    def linearize(self, contexts: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Features at contexts (B, M, W), and the pull-back of feature gradients (G, C, D) to (G, M, W).

        G equals B, or B is 1 and G gradients are pulled back through the one shared forward.
        """
        leaf = contexts.detach().requires_grad_()
        if not self._chunks or contexts.ndim == 4:
            whole = self.plain(leaf)
            return whole.detach(), lambda g: _pull(whole, leaf, g, retain=True)
        owners = [torch.cat([group.labels for group in chunk.groups]) for chunk in self._chunks]
        tokens = sum(self._tokens_in(chunk.groups) for chunk in self._chunks)
        if leaf.shape[0] * tokens <= self._token_budget():
            parts = [self._encode(leaf, chunk) for chunk in self._chunks]

            def pull(gradients: Tensor) -> Tensor:
                pulled = [
                    _pull(part, leaf, gradients[:, own], retain=True)
                    for part, own in zip(parts, owners, strict=True)
                ]
                return torch.stack(pulled).sum(dim=0)

            return self._scatter(parts).detach(), pull

        @torch.enable_grad()
        def pull_again(gradients: Tensor) -> Tensor:
            total = torch.zeros((gradients.shape[0], *leaf.shape[1:]), device=leaf.device)
            for chunk, own in zip(self._chunks, owners, strict=True):
                total = total + _pull(self._encode(leaf, chunk), leaf, gradients[:, own], retain=False)
            return total.detach()

        return self(contexts), pull_again

    @property
    def plain_tokens(self) -> int:
        """How many tokens ``plain`` runs for one context."""
        return len(self) * self._plain_length()

    def _plain_length(self) -> int:
        return int(self._end.max()) + 1 if self._tower.causal else self._tokens.shape[1]

    def plain(self, contexts: Tensor) -> Tensor:
        """Every prompt as a whole sequence: towers that are not causal, and a context per label."""
        p, tower = self._prompts, self._tower
        length = self._plain_length()
        if contexts.ndim == 3:
            contexts = contexts[:, None].expand(-1, len(p.texts), -1, -1)
        batch, labels = contexts.shape[:2]
        words = tower.embed(self._tokens[:, :length]).expand(batch, -1, -1, -1)
        x = torch.cat([words[:, :, : p.start], contexts, words[:, :, p.start + p.length :]], dim=2)
        return tower.run(x.flatten(0, 1), self._end.repeat(batch)).view(batch, labels, -1)

    def _encode(self, contexts: Tensor, chunk: _Chunk) -> Tensor:
        """Features (B, n, D) of a chunk's labels, in the groups' order."""
        tower, batch, groups = self._tower, contexts.shape[0], chunk.groups
        head = self._prompts.start + self._prompts.length  # P: tokens shared by all labels
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
        head = self._prompts.start + self._prompts.length
        lengths = self._end + 1 - head
        most = self._token_budget()
        if self._tokens.is_cuda:
            most = min(most, GPU_TOKENS)
        groups: list[_Group] = []
        for length in sorted(set(lengths.tolist())):
            labels = (lengths == length).nonzero().flatten()
            for part in labels.split(max(1, (most - head) // length)):
                groups.append(_Group(part, self._tokens[part, head : head + length]))
        chunks: list[list[_Group]] = [[]]
        for group in groups:
            if chunks[-1] and self._tokens_in([*chunks[-1], group]) > most:
                chunks.append([])
            chunks[-1].append(group)
        order = torch.cat([group.labels for chunk in chunks for group in chunk])
        self._back = order.argsort()
        return [
            _Chunk(
                chunk,
                sees(head, [group.tokens.shape for group in chunk], self._tokens.device)
                if self._tokens_in(chunk) <= DENSE_TOKENS
                else None,
            )
            for chunk in chunks
        ]

    def _tokens_in(self, groups: list[_Group]) -> int:
        return self._prompts.start + self._prompts.length + sum(g.tokens.numel() for g in groups)

    def _token_budget(self) -> int:
        """Tokens whose activations (about 20 widths a layer) fit in GRAPH_BYTES."""
        return max(64, GRAPH_BYTES // (len(self._tower.blocks) * 20 * self._tower.width * 4))


def _pull(features: Tensor, leaf: Tensor, gradients: Tensor, retain: bool) -> Tensor:
    """Vector-Jacobian products of features (1 or G, C, D) for gradients (G, C, D)."""
    if features.shape[0] == gradients.shape[0]:
        return torch.autograd.grad(features, leaf, gradients, retain_graph=retain)[0]
    (pulled,) = torch.autograd.grad(
        features, leaf, gradients[:, None], retain_graph=retain, is_grads_batched=True
    )
    return pulled[:, 0]
