"""C-TPT: TPT with dispersed text features, for calibrated confidence."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.linalg import vector_norm

from mltta.methods.config import setting
from mltta.methods.registry import register
from mltta.methods.tpt import TPT, TPTConfig


@dataclass(frozen=True)
class CTPTConfig(TPTConfig):
    """TPT's settings, and the dispersion weight of the published script for fine-grained labels."""

    dispersion: float = setting(50.0, "weight of the dispersion (ImageNet's variants: 20)", least=0)


@register("c-tpt", "calibrated TPT: disperses text features while tuning the context (ICLR 2024)")
class CTPT(TPT):
    """Marginal entropy minus the mean distance of text features from their mean, in one step.

    The paper: https://arxiv.org/abs/2403.14119. It targets calibration and does not cover multi-label images.
    """

    Config = CTPTConfig
    config: CTPTConfig

    def objective(self, logits: Tensor, text: Tensor, k: Tensor | None, rows: Tensor) -> Tensor:
        apart: Tensor = vector_norm(text - text.mean(dim=1, keepdim=True), dim=-1).mean(dim=-1)  # (B,)
        return super().objective(logits, text, k, rows) - self.config.dispersion * apart
