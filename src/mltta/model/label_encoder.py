"""Text features of labels as a function of the context vectors in front of every label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mltta.errors import ConfigError, LabelError, WeightsError
from mltta.model.passes import each
from mltta.model.prompts import split_template, token_ids

#: backpropagates feature gradients (G, C, D) to contexts (G, M, W)
PullBack = Callable[[Tensor], Tensor]
#: on a CPU, number of labels that one thread encodes together
LABELS_AT_ONCE = 256


@dataclass(frozen=True)
class Prompts:
    """C label prompts as token ids, with M context tokens in front of every label."""

    texts: tuple[str, ...]
    tokens: Tensor  # (C, context_length), context positions contain placeholder words
    start: int  # position of the first context token: 1 after a start token, else 0
    length: int  # M
    end: Tensor  # (C,) position of the last token (end-of-text, if there is one)


def build_prompts(
    tokenizer: Any, labels: Sequence[str], template: str, context_length: int, n_context: int | None = None
) -> Prompts:
    """Tokenize every label after the template's words, or after ``n_context`` placeholder words.

    Args:
        tokenizer: the backbone's open_clip tokenizer.
        labels: the label texts used in prompts.
        template: a text with one {}; the words in front of it are the context.
        context_length: maximum number of tokens of the text tower.
        n_context: number of learned context vectors that replace the template's words.
    """
    before, after = split_template(template)
    if n_context is not None:
        before = " ".join(["X"] * n_context)
    n_before = len(token_ids(tokenizer, before)) if before else 0
    texts = tuple(f"{before} {label}{after}".strip() for label in labels)
    bare = [token_ids(tokenizer, text) for text in texts]
    tokens = tokenizer(list(texts), context_length=context_length)
    first = next((ids[0] for ids in bare if ids), None)
    start = 0 if first is not None and int(tokens[0, 0]) == first else 1
    room = context_length - start - 1
    for label, ids in zip(labels, bare, strict=True):
        if len(ids) > room:
            raise LabelError(
                f"label {label[:60]!r} is too long: its prompt has {len(ids)} tokens, "
                f"but this model takes at most {room}. Shorten the label."
            )
    end = tokens.new_tensor([start + len(ids) for ids in bare]).clamp(max=context_length - 1)
    return Prompts(texts, tokens, start, n_before, end)


class TextTower:
    """The parts of an open_clip text tower, either on the model itself (CLIP) or in ``model.text``."""

    def __init__(self, model: nn.Module) -> None:
        root: Any = model if hasattr(model, "token_embedding") else getattr(model, "text", None)
        self.root = root
        #: whether the tower accepts context vectors
        self.tunable = hasattr(root, "token_embedding") and getattr(root, "cls_emb", None) is None
        if not self.tunable:
            return
        if not hasattr(root.transformer, "resblocks"):
            raise WeightsError(
                "this text tower has no transformer.resblocks; this version of open_clip is not "
                "supported: pip install 'open_clip_torch>=3,<4'"
            )
        self.blocks = list(root.transformer.resblocks)
        self.pool: str = getattr(root, "text_pool_type", None) or root.pool_type
        self.mask: Tensor | None = root.attn_mask
        self.width: int = root.positional_embedding.shape[1]
        self.deep: list[Tensor] = []  # MaPLe's prompts (M, W) of the blocks after the first
        #: causal, pooled at the end-of-text token, with standard blocks: the fast path is exact
        self.causal = (
            self.mask is not None
            and self.pool in ("argmax", "eos")
            and all(isinstance(getattr(b, "attn", None), nn.MultiheadAttention) for b in self.blocks)
        )

    @property
    def positions(self) -> Tensor:
        return self.root.positional_embedding  # type: ignore[no-any-return]

    def embed(self, tokens: Tensor) -> Tensor:
        return self.root.token_embedding(tokens)  # type: ignore[no-any-return]

    def end_of(self, tokens: Tensor) -> Tensor:
        """Where the end-of-text token of each row (S, L) is: CLIP's has the highest id, that of others a known one."""
        if self.pool != "eos":
            return tokens.argmax(dim=-1)
        own = self.root.text_eos_id if hasattr(self.root, "text_eos_id") else self.root.eos_id
        return tokens.eq(own).int().argmax(dim=-1)

    def project(self, x: Tensor) -> Tensor:
        """Final norm, projection and normalization of pooled tokens (..., W)."""
        x = self.root.ln_final(x)
        projection = self.root.text_projection
        if projection is not None:
            x = projection(x) if isinstance(projection, nn.Linear) else x @ projection
        return F.normalize(x, dim=-1)

    def run(self, x: Tensor, end: Tensor) -> Tensor:
        """Run embedded sequences (S, L, W) through the blocks without optimizations, and pool them to (S, D)."""
        length = x.shape[1]
        x = x + self.positions[:length]
        mask = None if self.mask is None else self.mask[:length, :length]
        for i, block in enumerate(self.blocks):
            x = block(self.deepen(i, x), attn_mask=mask)
        at = {"first": torch.zeros_like(end), "last": torch.full_like(end, length - 1)}.get(self.pool, end)
        return self.project(x[torch.arange(x.shape[0], device=x.device), at])

    def deepen(self, i: int, x: Tensor) -> Tensor:
        """Input of block i (S, L, W); its deep prompts, if any, overwrite the positions after the start token."""
        if not 0 < i <= len(self.deep):
            return x
        prompt = self.deep[i - 1][: x.shape[1] - 1].expand(x.shape[0], -1, -1)
        return torch.cat([x[:, :1], prompt, x[:, 1 + prompt.shape[1] :]], dim=1)


class LabelEncoder:
    """Text features of a label list as a function of the context.

    ``encoder(contexts)`` takes contexts (B, M, W), shared by all labels, or (B, C, M, W), one per label,
    and returns unit features (B, C, D). ``encoder.features`` are those of the initial context.
    """

    def __init__(
        self, tower: TextTower, prompts: Prompts, context: Tensor | None, features: Tensor | None = None
    ):
        """Args:
        tower: the backbone's text tower.
        prompts: the tokenized labels.
        context: (M, W) initial context vectors, or (C, M, W), one per label; None for the template's own words.
        features: (C, D) precomputed features, for a tower whose context cannot be tuned.
        """
        self._tower, self._prompts, self._features = tower, prompts, features
        self._initial: tuple[Tensor, PullBack] | None = None
        self.tunable = features is None and prompts.length > 0
        if features is not None:
            return
        device = tower.positions.device
        self._tokens, self._end = prompts.tokens.to(device), prompts.end.to(device)
        if context is None:
            context = tower.embed(self._tokens[0, prompts.start : prompts.start + prompts.length])
        shape = (prompts.length, tower.width)
        if context.shape[-2:] != shape or context.shape[:-2] not in ((), (len(self),)):
            found = tuple(context.shape)
            raise ConfigError(f"context vectors are {found}, but this text tower takes {shape}")
        self.context = context.detach().to(device, torch.float32)

    def __getstate__(self) -> dict[str, Any]:
        """Drop the graph of the first step, which is specific to this process."""
        return self.__dict__ | {"_initial": None}

    def __len__(self) -> int:
        return len(self._prompts.texts)

    @property
    def features(self) -> Tensor:
        """(C, D) unit features for the initial context, computed once, without a graph."""
        if self._features is None:
            self._features = self._found()
        return self._features

    def _found(self) -> Tensor:
        """Compute the features; on a CPU, long lists are split among threads."""
        device = self.context.device
        if device.type != "cpu" or len(self) <= LABELS_AT_ONCE:
            return each(self, [self.context[None]], device)[0][0]

        @torch.no_grad()  # gradient mode is per thread
        def some(rows: Tensor) -> Tensor:
            return self.plain(self.context[None], rows)[0]

        return torch.cat(each(some, torch.split(torch.arange(len(self)), LABELS_AT_ONCE), device))

    def initial(self) -> tuple[Tensor, PullBack]:
        """``linearize`` at the initial context, cached: every image's first step starts from it."""
        if self._initial is None:
            self._initial = each(self.linearize, [self.context[None]], self.context.device)[0]
        return self._initial

    @torch.no_grad()
    def __call__(self, contexts: Tensor) -> Tensor:
        return self.plain(contexts)

    @torch.enable_grad()  # independent of the caller's mode
    def linearize(self, contexts: Tensor) -> tuple[Tensor, PullBack]:
        """Features at contexts (B, M, W), and the pull-back of feature gradients (G, C, D) to (G, M, W).

        G equals B, or B is 1 and G gradients are pulled back through the one shared forward pass.
        """
        leaf = contexts.detach().requires_grad_()
        features = self.plain(leaf)
        return features.detach(), lambda gradients: pull(features, leaf, gradients)

    @property
    def plain_tokens(self) -> int:
        """Number of tokens that ``plain`` processes per context."""
        return len(self) * self._plain_length()

    def _plain_length(self) -> int:
        return int(self._end.max()) + 1 if self._tower.causal else self._tokens.shape[1]

    def plain(self, contexts: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Encode every prompt as a full sequence, without the padding that a causal tower cannot see.

        Args:
            rows: only these labels.
        """
        p, tower = self._prompts, self._tower
        length, end = self._plain_length(), self._end[rows]
        contexts = contexts[:, None].expand(-1, len(end), -1, -1) if contexts.ndim == 3 else contexts[:, rows]
        batch, labels = contexts.shape[:2]
        words = tower.embed(self._tokens[rows, :length]).expand(batch, -1, -1, -1)
        x = torch.cat([words[:, :, : p.start], contexts, words[:, :, p.start + p.length :]], dim=2)
        return tower.run(x.flatten(0, 1), end.repeat(batch)).view(batch, labels, -1)


def pull(
    features: Tensor, leaf: Tensor, gradients: Tensor, *, retain: bool = True, batched: bool = False
) -> Tensor:
    """Vector-Jacobian products of features (1 or G, C, D) for gradients (G, C, D).

    Args:
        retain: keep the graph for another call.
        batched: all in one backward pass, which not every kernel supports.
    """

    def back(some: Tensor, **how: bool) -> Tensor:
        return torch.autograd.grad(features, leaf, some, retain_graph=retain, **how)[0]

    if features.shape[0] == gradients.shape[0]:
        return back(gradients)
    if batched:
        return back(gradients[:, None], is_grads_batched=True)[:, 0]
    return torch.cat([back(one[None]) for one in gradients])
