"""TagCLIP for towers without attention: the similarity of locations replaces it. Ours, no paper."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.methods.config import setting
from mltta.methods.registry import register
from mltta.methods.tagclip import TagCLIP, TagCLIPConfig


@dataclass(frozen=True)
class TagCLIPLocalConfig(TagCLIPConfig):
    """TagCLIP's settings, plus the sharpness of the similarity."""

    sharpness: float = setting(10.0, "sharpness of the similarity that replaces attention", least=0)


@register("tagclip-local", "TagCLIP's idea for the locations of any tower, including CNNs; ours")
class TagCLIPLocal(TagCLIP):
    """Locations attend to those with similar features, above the mean; crops are encoded unchanged.

    The idea: https://arxiv.org/abs/2312.12828. There is no class token to restrict to a region.
    """

    Config = TagCLIPLocalConfig
    config: TagCLIPLocalConfig

    def prepare_tower(self) -> int:
        if self.backbone.local is None:
            raise ConfigError(
                f"{self.name} reads the locations of a feature map, but the image tower of {self.backbone.name} "
                "does not provide them; choose another model, or --method auto, which then uses tiles"
            )
        cell = max(1, self.side // 7)
        return cell * max(1, round(7 * self.config.scale))

    @torch.no_grad()
    def locations(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        local = self.backbone.local
        assert local is not None  # checked on creation
        features = F.normalize(local(pixels[None].to(self.backbone.image_dtype))[0].float(), dim=-1)
        rows = features.flatten(0, 1)  # (hw, D)
        like = (self.config.sharpness * rows @ rows.T).softmax(dim=-1)
        return features, (like >= like.mean()) * like  # identical locations all attend to each other

    def again(self, pixels: Tensor, regions: Tensor) -> Tensor:
        return self.backbone.encode_images(torch.stack([self.crop(pixels, region) for region in regions]))
