"""Three experts of each label's text: means of ever more of its prompts, the most peculiar first."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.methods.base import Problem
from mltta.model.prompts import list_templates

EXPERTS = 3


def text_experts(problem: Problem, wanted_by: str) -> Tensor:
    """Unit features (3, C, D) of a label's prompts, one a template; the last expert is the mean of all."""
    templates = list_templates(problem.template)
    if problem.backbone is None or problem.labels is None:
        raise ConfigError(
            f"{wanted_by} needs the labels and the text tower: it compares the prompts of a label"
        )
    if len(templates) < 2:
        raise ConfigError(
            f"{wanted_by} compares the prompts of a label, and one template gives one: use --template simple"
        )
    own = [problem.backbone.encode_labels(problem.labels, one).features for one in templates]
    return experts_of(torch.stack(own, dim=1))


def experts_of(prompts: Tensor) -> Tensor:
    """Experts (3, C, D) from the unit features (C, T, D) of a label's prompts."""
    alike = (prompts @ prompts.transpose(1, 2)).sum(dim=-1)  # (C, T), itself counted in all alike
    order = alike.argsort(dim=1, stable=True)
    ordered = prompts.take_along_dim(order[..., None], dim=1)
    third = max(1, prompts.shape[1] // EXPERTS)
    ends = [min(third * i, prompts.shape[1]) for i in range(1, EXPERTS)] + [prompts.shape[1]]
    return torch.stack([F.normalize(ordered[:, :end].mean(dim=1), dim=-1) for end in ends])
