"""Both towers during training, with scales used only by the losses."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training import model as clip
from training import pack
from training.material import CONTEXT, Material, Rows
from training.recipe import Recipe


class Towers:
    """The model, initialized from the pretrained image tower or from an existing model."""

    def __init__(self, material: Material, recipe: Recipe) -> None:
        torch.manual_seed(recipe.start)
        sentences, device = material.sentences, material.device
        self.texts, self.device = sentences.texts, device
        base = clip.read(Path(recipe.base))[0] if recipe.base else None
        width = sentences.goals.shape[1] if base is None else base.text_projection.shape[1]
        tower = load_file(material.folder / pack.TOWER)
        self.config = clip.config(
            sentences.vocab_size, CONTEXT, width, recipe.text_width, recipe.text_layers,
            len(tower["conv1.weight"]), recipe.blocks,
        )  # fmt: skip
        self.model = clip.build(self.config).eval()
        if base is not None:
            self.model.load_state_dict(base.state_dict())
        else:
            clip.start_from_vit(self.model, tower)
        self.model.to(device=device)
        # sigmoid(scale * cosine + bias) for nouns, with one vector and with windows
        self.noun_scale, self.window_scale = (self._free(math.log(20.0)) for _ in range(2))
        self.noun_bias, self.window_bias = (self._free(-5.0) for _ in range(2))

    def _free(self, value: float) -> nn.Parameter:
        return nn.Parameter(torch.tensor(value, device=self.device))

    @property
    def free(self) -> list[nn.Parameter]:
        """Scales and biases."""
        return [
            self.model.logit_scale, self.noun_scale, self.noun_bias, self.window_scale, self.window_bias,
        ]  # fmt: skip

    def parameters(self) -> dict[str, nn.Parameter]:
        """The towers' parameters by name, without scales."""
        return {k: v for k, v in self.model.named_parameters() if k != "logit_scale"}

    def encode(self, rows: Rows) -> Tensor:
        """Unit features of some sentences."""
        with self.autocast():
            return clip.encode_text(self.model, *self.texts.batch(rows))

    def autocast(self) -> torch.autocast:
        """Half precision if the device is fast at it."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def limit_scale(self) -> None:
        """Keep the logit scale at 100 or less, as CLIP does."""
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=math.log(100))
