"""TPT: tune one shared context so that an image's views agree confidently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mltta.methods.base import Method, register
from mltta.methods.config import TuningConfig, setting
from mltta.methods.tuning import tune_context
from mltta.model.encoded import Encoded
from mltta.objectives import bind_labels, bound_entropy, entropy, select_confident


@dataclass(frozen=True)
class TPTConfig(TuningConfig):
    """TPT's published settings."""

    bind: bool = setting(False, "bind the top k labels of each view, as ML-TTA does; needs captions")


@register("tpt", "test-time prompt tuning: marginal entropy of the confident views (NeurIPS 2022)")
class TPT(Method):
    """Marginal entropy of the views selected before the first step; then the clean view is scored.

    With ``bind``, the entropy is bound: the top labels of a view no longer compete with each other.
    The paper: https://arxiv.org/abs/2209.07511. Binding is Section 3.2 of https://openreview.net/forum?id=75PhjtbBdr.
    """

    Config: ClassVar[type[TuningConfig]] = TPTConfig
    requires = frozenset({"context"})
    config: TuningConfig

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        c, views = self.config, self.views(encoded)
        k = None if self.captions is None else self.captions.nearest_counts(views.features)  # (B, N)
        logits = self.logits(views.features, self.text.features)
        rows = self.choose(logits if k is None else bind_labels(logits, k))

        def loss(text: Tensor, views: Tensor) -> Tensor:
            return self.objective(self.logits(views, text), text, k, rows)

        context = tune_context(self.text, views, loss, lr=c.lr, weight_decay=c.weight_decay, steps=c.steps)
        return {"view": self.logits(views.clean(context), self.text(context))[:, 0]}

    def choose(self, logits: Tensor) -> Tensor:
        """The views (B, N) to tune on, selected once before the first step from their logits (B, N, C)."""
        return select_confident(entropy(logits), self.config.select_ratio)

    def objective(self, logits: Tensor, text: Tensor, k: Tensor | None, rows: Tensor) -> Tensor:
        """The loss (B,) of logits (B, N, C) and label features (B, C, D), for the selected rows."""
        return bound_entropy(logits, k, reduction="marginal", rows=rows)
