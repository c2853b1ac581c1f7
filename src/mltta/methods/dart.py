"""DART: a context per label and a prompt in the image tower, tuned on each image and partly retained."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mltta.errors import ConfigError
from mltta.methods.base import OnlineMethod, Problem, State, register
from mltta.methods.config import SHARE, TuningConfig, setting
from mltta.methods.towers import PromptedViT
from mltta.methods.tuning import Moments, adamw
from mltta.model.encoded import Encoded
from mltta.objectives import bind_labels, entropy, marginal_entropy, select_confident


@dataclass(frozen=True)
class DARTConfig(TuningConfig):
    """The settings of the command in the release's README; differing argument defaults are noted."""

    # For ImageNet-A, the README takes unscaled crops from the image at 410 pixels; here crops are TPT's.
    layer: int = setting(1, "image-tower block that gets the image prompt, counted from 0", least=0)
    # argument default 0.5
    text_weight: float = setting(0.1, "weight of the retained contexts in an image's contexts", **SHARE)
    image_weight: float = setting(0.1, "weight of the retained prompt in an image's prompt", **SHARE)
    # argument defaults 37 and 5000
    text_horizon: float = setting(5000.0, "h: fraction exp(-logit / h) of retained contexts is kept", above=0)
    image_horizon: float = setting(5000.0, "h of the retained image prompts", above=0)
    prompt_seed: int = setting(0, "seed of the initial image prompt")
    bind: bool = setting(False, "bind the top k labels of each view, as ML-TTA does; needs captions")


@register("dart", "dual-modal online prompts: a context per label and an image prompt, retained (AAAI 2024)")
class DART(OnlineMethod):
    """Contexts restart near the template's words for each image; the image prompt continues from the last image.

    The paper: https://doi.org/10.1609/aaai.v38i13.29320
    """

    Config = DARTConfig
    requires = frozenset({"context", "pixels"})
    config: DARTConfig

    def __init__(self, problem: Problem, config: DARTConfig):
        super().__init__(problem, config)
        if problem.backbone is None:
            raise ConfigError("dart needs the backbone because it inserts a prompt into the image tower")
        if problem.backbone.reads_context:
            raise ConfigError("dart inserts an image prompt, so it cannot be combined with MaPLe's prompts")
        self.preprocess = problem.backbone.preprocess
        self.tower = PromptedViT(problem.backbone, config.layer)

    def start(self) -> State:
        text = self.text.features  # (C, D)
        generator = torch.Generator().manual_seed(self.config.prompt_seed)
        prompt = (torch.rand(1, 1, 2, self.tower.width, generator=generator) * 2 - 1).to(text.device)
        return {
            "text_shadow": self.text.context.expand(len(text), -1, -1).clone(),  # (C, M, W)
            "image_shadow": prompt.repeat(len(text), 1, 1, 1),  # (C, 1, 2, W')
            "image_prompt": prompt,
        }

    def step(self, state: State, encoded: Encoded) -> tuple[dict[str, Tensor], State]:
        c, spec = self.config, self.needs[0]
        pixels = encoded.pixels(spec, self.preprocess, np.arange(c.views)[None])[0]  # (N, 3, S, S)
        tokens = self.tower.begin(torch.from_numpy(pixels))
        k = None if self.captions is None else self.captions.nearest_counts(encoded.features(spec)[0])
        context = c.text_weight * state["text_shadow"] + (1 - c.text_weight) * self.text.context
        context, prompt = self.tune(tokens, k, context, state["image_prompt"][0, 0])

        text = self.text(context[None])[0]  # (C, D)
        logits = self.logits(self.tower.finish(tokens, prompt), text)  # (N, C)
        seen = logits[self.choose(logits, k)].mean(dim=0).argmax()
        prompt = c.image_weight * state["image_shadow"][seen, 0] + (1 - c.image_weight) * prompt
        scores = self.logits(self.tower.finish(tokens[:1], prompt), text)  # (1, C)

        label, logit = int(scores.argmax()), float(scores.max())
        for shadow, tuned, horizon in (
            (state["text_shadow"][label], context[label], c.text_horizon),
            (state["image_shadow"][label, 0], prompt, c.image_horizon),
        ):
            shadow.lerp_(tuned, 1 - math.exp(-logit / horizon))
        return {"view": scores}, {**state, "image_prompt": prompt[None, None]}

    def choose(self, logits: Tensor, k: Tensor | None) -> Tensor:
        """The confident views (N,), selected anew in every step."""
        bound = logits if k is None else bind_labels(logits, k)
        return select_confident(entropy(bound), self.config.select_ratio)

    def tune(
        self, tokens: Tensor, k: Tensor | None, context: Tensor, prompt: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The contexts (C, M, W) and image prompt (2, W') after tuning on the image, with fresh AdamW state."""
        c = self.config
        of_text: Moments | None = None
        of_image: Moments | None = None
        for _ in range(c.steps):
            features, pull_back = self.text.linearize(context[None])
            rows = self.choose(self.logits(self.tower.finish(tokens, prompt), features[0]), k)
            text, image = features.detach().requires_grad_(), prompt.detach().requires_grad_()
            with torch.enable_grad():
                # Only the selected views: a tenth of the memory of a graph over all.
                logits = self.logits(self.tower.finish(tokens[rows], image), text[0])
                bound = logits if k is None else bind_labels(logits, k[rows])
                loss = marginal_entropy(bound, torch.ones_like(bound[:, 0], dtype=torch.bool))
                to_text, to_image = torch.autograd.grad(loss, (text, image))
            context, of_text = adamw(context, pull_back(to_text)[0], c.lr, c.weight_decay, of_text)
            prompt, of_image = adamw(prompt, to_image, c.lr, c.weight_decay, of_image)
        return context, prompt
