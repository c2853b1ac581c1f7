"""DiffTPT: TPT on crops and on images that a diffusion model made of the image, filtered twice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.images.specs import AnySpec, ViewSpec
from mltta.methods.base import Problem, register
from mltta.methods.config import MOST_VIEWS, PART, TuningConfig, setting
from mltta.methods.tpt import TPT
from mltta.objectives import entropy, select_confident


@dataclass(frozen=True)
class DiffTPTConfig(TuningConfig):
    """The settings of the released script, whose filters are its argument defaults too."""

    generated: str = setting("", "folder of generated images, one folder per photo")
    generated_views: int = setting(63, "generated images per image", least=1, most=MOST_VIEWS)
    views: int = setting(64, "crops beside the clean view: 128 views with it and the generated ones")
    cosine_ratio: float = setting(0.8, "share of the views kept, the most like the clean one", **PART)
    select_ratio: float = setting(0.3, "share of what is left that is most confident")
    # The released program's own argument default is 1.
    steps: int = 4

    def specs(self, side: int) -> tuple[AnySpec, ...]:
        crops = ViewSpec(count=1 + self.views, augmix=self.augmix)
        return crops, ViewSpec(count=self.generated_views, generated=self.generated)


@register("difftpt", "TPT on crops and diffusion-made variations, filtered twice (ICCV 2023)")
class DiffTPT(TPT):
    """As released, both filters see crops and generated views together; the paper filters each kind by itself.

    The paper: https://arxiv.org/abs/2308.06038
    """

    Config = DiffTPTConfig
    config: DiffTPTConfig

    def __init__(self, problem: Problem, config: DiffTPTConfig):
        super().__init__(problem, config)
        if not config.generated:
            raise ConfigError(
                "difftpt needs images generated beforehand: make them with `mltta variations` "
                "(pip install mltta[diffusion]) or by other means, one folder per photo, and give "
                "--variations DIR, in Python generated=DIR"
            )
        if not Path(config.generated).is_dir():
            raise ConfigError(f"generated = {config.generated!r}: there is no such folder")

    def choose(self, logits: Tensor) -> Tensor:
        """The views (B, N) that pass both filters."""
        unlike = -F.cosine_similarity(logits[:, :1], logits[:, 1:], dim=-1)  # (B, N - 1)
        alike = select_confident(unlike, self.config.cosine_ratio)
        alike = F.pad(alike, (1, 0), value=True)  # the clean view always passes the first
        return select_confident(entropy(logits), self.config.select_ratio, alike)
