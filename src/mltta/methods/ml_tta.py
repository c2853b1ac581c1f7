"""ML-TTA: two contexts, one tuned on views and one on retrieved captions, by bound entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.methods.base import Merging, Method, register
from mltta.methods.config import MOST_STEPS, ViewConfig, setting
from mltta.methods.tuning import Loss, tune_context
from mltta.model.context_views import Views
from mltta.model.encoded import Encoded
from mltta.objectives import bound_entropy, entropy, label_set_bce, select_confident

#: source of a view's weak label set: its nearest caption (paper), or several captions combined
WeakLabels = Literal["nearest", "vote", "weighted", "union", "intersection"]


@dataclass(frozen=True)
class MLTTAConfig(ViewConfig):
    """The paper's settings; every component of its ablation tables has a switch here."""

    PRESETS = {
        "released": {
            "augmix": True,
            "objective": "marginal",
            "caption_pool": "unique",
            "label_count": "list",
            "merge": "minmax",
        }
    }

    captions_per_view: int = setting(16, "captions retrieved per view", least=1)
    lr_view: float = setting(1e-2, "learning rate of the view prompt", least=0)
    lr_caption: float = setting(1e-3, "learning rate of the caption prompt", least=0)
    weight_decay: float = setting(0.01, "weight decay of both prompts", least=0)
    steps: int = setting(1, "optimizer steps per image", least=0, most=MOST_STEPS)
    view_prompt: bool = setting(True, "tune a prompt on the views")
    caption_prompt: bool = setting(True, "tune a prompt on the captions")
    bind: bool = setting(True, "bind the top k labels of each row before the entropy")
    objective: Literal["mean", "marginal", "bce"] = setting(
        "mean", "mean row entropy (paper), marginal entropy (released), or bce on the label sets (Table 6)"
    )
    select_on: Literal["bound", "raw"] = setting(
        "bound", "compute confidence from bound logits (released; unspecified in the paper) or raw logits"
    )
    caption_pool: Literal["paired", "unique"] = setting(
        "paired", "captions of every view, with repeats (paper), or distinct captions only (released)"
    )
    weak_labels: WeakLabels = setting(
        "nearest", "a view's weak label set: from its nearest caption (paper), or from several"
    )
    label_count: Literal["set", "list"] = setting(
        "set", "k is the size of a caption's label set (paper) or of its list of mentions (released)"
    )
    merge: Merging = setting("sum", "add scores (paper), or min-max scale them first (released)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.view_prompt or self.caption_prompt):
            raise ConfigError("ml-tta needs a view prompt, a caption prompt, or both")


@register("ml-tta", "multi-label test-time adaptation by bound entropy minimization (ICLR 2025)")
class MLTTA(Method):
    """Retrieve captions for the views, bind each row's top-k labels, one step on both contexts, add the scores.

    Section 3.3 of the paper, with Algorithm 1: https://openreview.net/forum?id=75PhjtbBdr
    """

    Config = MLTTAConfig
    requires = frozenset({"captions", "context"})
    config: MLTTAConfig
    captions: LabelledCaptions

    @property
    def branch_names(self) -> list[str]:
        """The prompts that are enabled."""
        return ["view"] * self.config.view_prompt + ["caption"] * self.config.caption_prompt

    @property
    def merging(self) -> Merging:
        return self.config.merge

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        c, views = self.config, self.views(encoded)
        found = self.retrieve(views.features)
        weak, how = None, c.weak_labels
        if how != "nearest":  # label sets (B, N, C) of views come from several captions
            weak = combined_labels(self.captions, views.features, found, how, self.logit_scale)
        contexts = []
        for branch in self.branch_names:
            caption, valid = self.labels_from(branch, found)
            own = branch == "view"
            rows = views if own else Views(self.captions.embeddings[caption])
            loss, lr = self.loss(caption, valid, weak if own else None), c.lr_view if own else c.lr_caption
            contexts.append(
                tune_context(self.text, rows, loss, lr=lr, weight_decay=c.weight_decay, steps=c.steps)
            )
        text = self.text(torch.cat(contexts)).chunk(len(contexts))  # each (B, C, D)
        clean = [views.clean(context) for context in contexts]  # each (B, 1, D)
        return {branch: self.logits(clean[i], text[i])[:, 0] for i, branch in enumerate(self.branch_names)}

    def retrieve(self, views: Tensor) -> Tensor:
        """Captions (B, N, K) of each view, nearest first."""
        found: Tensor = self.captions.nearest(views, self.config.captions_per_view)
        return found

    def labels_from(self, branch: str, found: Tensor) -> tuple[Tensor, Tensor | None]:
        """For each row that a prompt is tuned on, the caption (B, R) that provides its labels, and a validity mask."""
        if branch == "view":  # a view's weak label set is that of its nearest caption
            return found[..., 0], None
        caption = found.flatten(1)  # (B, N K), pseudo-views with known label sets
        return caption, _first_of_each(caption) if self.config.caption_pool == "unique" else None

    def loss(self, caption: Tensor, valid: Tensor | None, labels: Tensor | None = None) -> Loss:
        """The objective; rows use the labels of their captions (B, R), unless ``labels`` (B, R, C) are given."""
        c = self.config
        k = self.captions.k(caption, c.label_count) if labels is None else labels.sum(dim=-1)

        def loss(text: Tensor, rows: Tensor) -> Tensor:
            logits = self.logits(rows, text)
            if c.objective == "bce":
                chosen = select_confident(entropy(logits), c.select_ratio, valid)
                targets = self.captions.multi_hot(caption) if labels is None else labels
                return label_set_bce(logits, targets, chosen)
            return bound_entropy(
                logits,
                k if c.bind else None,
                ratio=c.select_ratio,
                reduction=c.objective,
                select_on=c.select_on,
                valid=valid,
            )

        return loss


def combined_labels(
    captions: LabelledCaptions, views: Tensor, found: Tensor, how: WeakLabels, scale: float
) -> Tensor:
    """Weak label sets (..., N, C), zeros and ones, of views (..., N, D) from their captions (..., N, K), nearest first.

    "vote" takes labels named by at least half of the captions, "weighted" by at least half of their softmax-weighted
    similarity, "union" by any and "intersection" by all of them. If nothing remains, the nearest caption decides.
    """
    named: Tensor = captions.multi_hot(found)  # (..., N, K, C)
    nearest = named[..., 0, :]
    if how == "nearest":
        return nearest
    if how == "union":
        return named.amax(dim=-2)
    if how == "intersection":
        labels = named.amin(dim=-2)
    else:
        share = named.mean(dim=-2)
        if how == "weighted":
            similarity = (views.unsqueeze(-2) * captions.embeddings[found]).sum(dim=-1)  # (..., N, K)
            share = ((scale * similarity).softmax(dim=-1).unsqueeze(-2) @ named).squeeze(-2)
        labels = (share >= 0.5).to(named.dtype)
    return torch.where(labels.any(dim=-1, keepdim=True), labels, nearest)


def _first_of_each(ids: Tensor) -> Tensor:
    """Mark one occurrence of each distinct id per row of (B, R)."""
    order = ids.argsort(dim=-1, stable=True)
    ordered = ids.gather(-1, order)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.empty_like(new).scatter_(-1, order, new)
