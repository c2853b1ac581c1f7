"""Labels under contexts: unit text features as a function of the vectors in front of every label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mltta.errors import ConfigError
from mltta.model.prompts import Prompts
from mltta.model.text_tower import TextTower
from mltta.model.threads import each

#: brings gradients (G, C, D) of the features back to contexts (G, M, W)
PullBack = Callable[[Tensor], Tensor]
#: on a CPU, labels that one thread encodes together
LABELS_AT_ONCE = 256


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
        prompts: the labels laid out as tokens.
        context: (M, W) initial context vectors, or (C, M, W), one a label; None for the template's own words.
        features: (C, D) ready features, for a tower whose context cannot be tuned.
        """
        self._tower = tower
        self._prompts = prompts
        self._initial: tuple[Tensor, PullBack] | None = None
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
        shape = (prompts.length, tower.width)
        if context.shape[-2:] != shape or context.shape[:-2] not in ((), (len(self),)):
            raise ConfigError(
                f"context vectors are {tuple(context.shape)}, but this text tower takes {shape}"
            )
        self.context = context.detach().to(device, torch.float32)

    def __getstate__(self) -> dict[str, Any]:
        """Without the graph of the first step, which belongs to this process."""
        return self.__dict__ | {"_initial": None}

    def __len__(self) -> int:
        return len(self._prompts.texts)

    @property
    def features(self) -> Tensor:
        """(C, D) unit features under the initial context, computed once, without a graph behind them."""
        if self._features is None:
            self._features = self._found()
        return self._features

    def _found(self) -> Tensor:
        """On a CPU long lists are divided among threads, each of which has its labels to itself."""
        device = self.context.device
        if device.type != "cpu" or len(self) <= LABELS_AT_ONCE:
            return each(self, [self.context[None]], device)[0][0]

        @torch.no_grad()  # each thread has to be told
        def some(rows: Tensor) -> Tensor:
            return self.plain(self.context[None], rows)[0]

        return torch.cat(each(some, torch.split(torch.arange(len(self)), LABELS_AT_ONCE), device))

    def initial(self) -> tuple[Tensor, PullBack]:
        """``linearize`` at the initial context, kept: every image's first step starts from it."""
        if self._initial is None:
            self._initial = each(self.linearize, [self.context[None]], self.context.device)[0]
        return self._initial

    @torch.no_grad()
    def __call__(self, contexts: Tensor) -> Tensor:
        return self.plain(contexts)

    @torch.enable_grad()  # whatever the caller is doing
    def linearize(self, contexts: Tensor) -> tuple[Tensor, PullBack]:
        """Features at contexts (B, M, W), and the pull-back of feature gradients (G, C, D) to (G, M, W).

        G equals B, or B is 1 and G gradients are pulled back through the one shared forward.
        """
        leaf = contexts.detach().requires_grad_()
        features = self.plain(leaf)
        return features.detach(), lambda gradients: pull(features, leaf, gradients)

    @property
    def plain_tokens(self) -> int:
        """How many tokens ``plain`` runs for one context."""
        return len(self) * self._plain_length()

    def _plain_length(self) -> int:
        return int(self._end.max()) + 1 if self._tower.causal else self._tokens.shape[1]

    def plain(self, contexts: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Every prompt as a whole sequence; what a causal tower cannot see, behind the longest prompt, is left out.

        Args:
            rows: of these labels only.
        """
        p, tower = self._prompts, self._tower
        length, end = self._plain_length(), self._end[rows]
        contexts = contexts[:, None].expand(-1, len(end), -1, -1) if contexts.ndim == 3 else contexts[:, rows]
        batch, labels = contexts.shape[:2]
        words = tower.embed(self._tokens[rows, :length]).expand(batch, -1, -1, -1)
        x = torch.cat([words[:, :, : p.start], contexts, words[:, :, p.start + p.length :]], dim=2)
        return tower.run(x.flatten(0, 1), end.repeat(batch)).view(batch, labels, -1)


def pull(features: Tensor, leaf: Tensor, gradients: Tensor) -> Tensor:
    """Vector-Jacobian products of features (1 or G, C, D) for gradients (G, C, D)."""
    if features.shape[0] == gradients.shape[0]:
        return torch.autograd.grad(features, leaf, gradients, retain_graph=True)[0]
    # one after another: not every kernel can be differentiated in batches
    return torch.cat(
        [torch.autograd.grad(features, leaf, one[None], retain_graph=True)[0] for one in gradients]
    )
