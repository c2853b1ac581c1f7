"""RLCF: tune the context with a teacher's rewards for the student's likely labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mltta.methods.base import Method, register
from mltta.methods.config import TuningConfig, setting
from mltta.methods.tuning import Loss, tune_context
from mltta.model.encoded import Encoded
from mltta.objectives import entropy, select_confident

#: CLIPScore is max(0, 2.5 cos)
CLIPSCORE_WEIGHT = 2.5


@dataclass(frozen=True)
class RLCFConfig(TuningConfig):
    """The settings of the published scripts."""

    # The released program's argument defaults differ: 5 labels, 1 step, lr 5e-3. Its fine-grained
    # script uses 5 steps. All scripts start from 4 CoOp vectors: see `with_prompts`.
    sample_k: int = setting(3, "number of likely labels rewarded per view", least=1)
    steps: int = 3
    lr: float = 7e-3
    weight_decay: float = 5e-4


@register("rlcf", "reinforcement learning from CLIP feedback: a teacher rewards likely labels (ICLR 2024)")
class RLCF(Method):
    """In each confident view, likely labels are raised or lowered according to the teacher's reward.

    The paper: https://arxiv.org/abs/2305.18010
    """

    Config = RLCFConfig
    requires = frozenset({"context", "teacher", "pixels"})
    config: RLCFConfig

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        c, views = self.config, self.views(encoded)
        chosen = self.choose(views.features)
        kept = views.take(chosen)  # (B, n, D)
        loss = self.loss(self.judge(encoded, chosen, kept.features))
        context = tune_context(self.text, kept, loss, lr=c.lr, weight_decay=c.weight_decay, steps=c.steps)
        return {"view": self.logits(views.clean(context), self.text(context))[:, 0]}

    def choose(self, views: Tensor) -> Tensor:
        """Indices (B, n) of the confident views, selected once before the first step."""
        rows = select_confident(entropy(self.logits(views, self.text.features)), self.config.select_ratio)
        return rows.nonzero()[:, 1].view(len(views), -1)  # every image keeps the same number

    def judge(self, encoded: Encoded, chosen: Tensor, kept: Tensor) -> Tensor:
        """The teacher's CLIPScore (B, n, C) of every label in the chosen views."""
        teacher = self.problem.teacher
        assert teacher is not None  # checked by the base class
        if teacher.backbone is not None:
            shown = encoded.pixels(self.needs[0], teacher.backbone.preprocess, chosen)
            pixels = torch.from_numpy(shown)  # (B, n, 3, S, S)
            # On a CPU, one image per pass, so that results do not depend on the other images.
            parts = pixels if teacher.backbone.device.type == "cpu" else [pixels.flatten(0, 1)]
            features = torch.cat([teacher.backbone.encode_images(part) for part in parts])
            kept = features.view(*chosen.shape, -1).to(kept.device)
        score: Tensor = CLIPSCORE_WEIGHT * kept @ teacher.text.to(kept.device).T
        return score.clamp(min=0)

    def loss(self, judged: Tensor) -> Loss:
        """The objective, given the teacher's score of every label in the selected views (B, n, C)."""

        def loss(text: Tensor, kept: Tensor) -> Tensor:
            logits: Tensor = self.logits(kept, text)  # (B, n, C)
            # The likely labels are selected anew in every step.
            likely = logits.detach().topk(min(self.config.sample_k, logits.shape[-1])).indices  # (B, n, K)
            score = judged.gather(-1, likely)
            reward = score - score.mean(dim=-1, keepdim=True)
            surprise = -logits.log_softmax(dim=-1).gather(-1, likely)
            return (reward * surprise).mean(dim=(-2, -1))

        return loss
