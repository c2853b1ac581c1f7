"""ReTA: DPE with three text experts, which estimate the reliability of cached images and decision boundaries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.methods.base import Emits, Problem, State, register
from mltta.methods.config import SHARE, setting
from mltta.methods.dpe import DPE, DPEConfig
from mltta.methods.memory import align, likeness, prototypes, remember, stepped
from mltta.model.encoded import Encoded
from mltta.model.prompts import list_templates
from mltta.objectives import entropy, select_confident

#: text experts per label: means of increasingly many of its prompts, the least typical first
EXPERTS = 3
#: number of principal directions of the text space used by the experts
BASIS = 64


@dataclass(frozen=True)
class ReTAConfig(DPEConfig):
    """The settings of the release for ImageNet."""

    PRESETS = {"released": {"augmix": True, "score": "probs", "gate_by": "experts"}}

    boundary: float = setting(0.05, "weight of the Gaussian boundary", least=0)
    ratio: float = setting(1.0, "weight of the experts' disagreement", least=0)
    clean: float = setting(0.5, "weight of the clean view", **SHARE)
    score: Literal["logits", "probs"] = setting("logits", "logits (ours) or probabilities (released)")
    # log2 of the number of experts is an error in the release, which opens the gate less often
    gate_by: Literal["labels", "experts"] = setting(
        "labels", "divide entropy by log2 of the number of labels, or of experts (released)"
    )


@register("reta", "DPE with three text experts and Gaussian boundaries, online (ACM MM 2025)")
class ReTA(DPE):
    """Images on which the experts disagree are cached less readily; agreement sharpens decision boundaries.

    The paper: https://arxiv.org/abs/2507.09500
    """

    Config = ReTAConfig
    branch_names = ["clean", "views"]
    default_template = "simple"
    config: ReTAConfig

    def __init__(self, problem: Problem, config: ReTAConfig):
        super().__init__(problem, config)
        self.experts = text_experts(problem, self.name)  # (3, C, D)

    @property
    def emits(self) -> Emits:
        return "logits" if self.config.score == "logits" else "probabilities"

    def start(self) -> State:
        return {**super().start(), "text": self.experts.clone(), "basis": text_basis(self.experts[-1])}

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c, views, text = self.config, encoded.features(self.needs[0])[0], state["text"]
        image = views[0]
        clean = self.logits(views[:1], F.normalize(text[-1], dim=-1))[0]  # (C,)
        label = int(clean.argmax())
        doubt = self.doubt(state, image, label)
        remember(state, "image", label, float(entropy(clean)) * (1 + doubt), key=image)
        keys, held = prototypes(state, "image")
        keys = F.normalize(keys, dim=-1)

        def loss(residual: Tensor) -> Tensor:
            moved = F.normalize(text + residual, dim=-1)
            logits = self.logits(image[None], moved[-1])[0] + likeness(image, keys, held, c.alpha, c.beta)
            total = entropy(logits) + c.align * align(keys, moved[-1], held)
            return total if doubt else total + c.boundary * self.boundary(views, moved, label)

        (residual,) = stepped(loss, (text,), c.lr)
        moved = F.normalize(text + residual, dim=-1)
        cached = likeness(views, keys, held, c.alpha, c.beta)  # (N, C)
        clean = self.logits(views[:1], moved[-1]) + cached[:1]
        rows = self.logits(views, moved.mean(dim=0)) + cached
        sure = rows[select_confident(entropy(rows), c.select_ratio)]
        whole, seen = (one.softmax(dim=-1) if c.score == "probs" else one for one in (clean, sure))
        most = math.log2(EXPERTS if c.gate_by == "experts" else len(held))
        if float(entropy(clean)) < c.gate * most:
            state["updates"] = state["updates"] + 1
            state["text"] = torch.lerp(text, moved, 1 / (float(state["updates"]) + 1))
            state["basis"] = text_basis(state["text"][-1])
        return {"clean": c.clean * whole, "views": (1 - c.clean) * seen.mean(dim=0, keepdim=True)}, state

    def doubt(self, state: State, image: Tensor, label: int) -> float:
        """0 if all experts predict the guessed label; larger the more they disagree with it and each other."""
        seen = (state["basis"].T @ (state["basis"] @ image) @ state["text"].transpose(1, 2)).argmax(dim=-1)
        votes = seen.tolist()
        most = max(map(votes.count, votes))
        # if all experts differ, the guess counts as confirmed by any of them
        agreed = votes.count(label) == most
        return self.config.ratio * math.log(len(votes) / most * (1 if agreed else 2))

    def boundary(self, views: Tensor, experts: Tensor, label: int) -> Tensor:
        """Cross-entropy of the confident views with the guess, with logits raised by the experts' variance."""
        middle = experts.mean(dim=0)  # (C, D)
        apart = experts - middle
        # L_yy + L_cc - 2 L_yc of each axis's label covariance, without building it: it would have D C C numbers
        spread = (apart[:, label : label + 1] - apart).square().sum(dim=0) / (len(experts) + 1)  # (C, D)
        logits = self.logits(views, middle) + 0.5 * self.logit_scale**2 * views.square() @ spread.T  # (N, C)
        sure = logits[select_confident(entropy(logits), self.config.select_ratio)]
        return F.cross_entropy(sure, torch.full((len(sure),), label, device=sure.device))


def text_basis(text: Tensor) -> Tensor:
    """The principal directions (n, D) of the texts (C, D), at most one per text."""
    directions: Tensor = torch.linalg.svd(text, full_matrices=False).Vh
    return directions[: min(BASIS, *text.shape)].contiguous()


def text_experts(problem: Problem, wanted_by: str) -> Tensor:
    """Experts (3, C, D): unit features from a label's prompts, one per template; the last is the mean of all."""
    templates = list_templates(problem.template)
    if problem.backbone is None or problem.labels is None:
        raise ConfigError(f"{wanted_by} needs labels and a text tower because it compares prompts")
    if len(templates) < 2:
        raise ConfigError(f"{wanted_by} compares several prompts per label: use --template simple")
    own = [problem.backbone.encode_labels(problem.labels, one).features for one in templates]
    return experts_of(torch.stack(own, dim=1))


def experts_of(prompts: Tensor) -> Tensor:
    """Experts (3, C, D) from the unit features (C, T, D) of a label's prompts."""
    alike = (prompts @ prompts.transpose(1, 2)).sum(dim=-1)  # (C, T), each includes itself
    order = alike.argsort(dim=1, stable=True)
    ordered = prompts.take_along_dim(order[..., None], dim=1)
    third = max(1, prompts.shape[1] // EXPERTS)
    ends = [min(third * i, prompts.shape[1]) for i in range(1, EXPERTS)] + [prompts.shape[1]]
    return torch.stack([F.normalize(ordered[:, :end].mean(dim=1), dim=-1) for end in ends])
