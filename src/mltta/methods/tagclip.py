"""TagCLIP: what patches say, smoothed by the tower's own attention; likely labels are looked at again on their crop."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.errors import ConfigError
from mltta.images.specs import ViewSpec
from mltta.labels import LabelSet
from mltta.methods.base import Emits, Method, Problem, register
from mltta.methods.config import SHARE, Config, setting
from mltta.methods.towers import AttentiveViT
from mltta.model.encoded import Encoded

#: what a patch may show beside the labels; a word that some label has is left out
BACKGROUND = (
    "ground land grass tree building wall sky lake water river sea railway railroad keyboard helmet cloud house "
    "mountain ocean road rock street valley bridge sign"
)


@dataclass(frozen=True)
class TagCLIPConfig(Config):
    """The release's settings, but for the input: a square here, the image's own shape and size there."""

    scale: float = setting(2.0, "side of the input, in sides of the model's own view", above=0, most=8)
    votes: float = setting(1 / 3, "attention counts if above its mean in this share of the blocks", **SHARE)
    boxes: bool = setting(True, "smooth over boxes of the cells that stand out (paper: the cells alone)")
    again_from: float = setting(0.5, "look again at labels above this share of the range", **SHARE)
    # the release has no such bound
    candidates: int = setting(16, "labels looked at again at most, the likeliest first", least=0)


@register("tagclip", "patches smoothed by attention, likely labels looked at again; ViT only (AAAI 2024)")
class TagCLIP(Method):
    """The greatest patch score of each label, and half of what the label's own crop says, where it is likely.

    The paper: https://arxiv.org/abs/2312.12828. Unlike the release, the last row and column of patches count too.
    It is published with 85 templates: ``template="openai"`` has 80 of them.
    """

    Config = TagCLIPConfig
    emits: Emits = "probabilities"
    requires = frozenset({"pixels"})
    default_template = "simple"
    config: TagCLIPConfig

    def __init__(self, problem: Problem, config: TagCLIPConfig):
        super().__init__(problem, config)
        if problem.backbone is None or problem.labels is None:
            raise ConfigError(f"{self.name} needs the backbone itself: it looks at its patches")
        self.backbone = problem.backbone
        named = {word for text in problem.labels.texts for word in text.lower().split()}
        self.vocabulary = self.text.features  # (K, D), the labels first
        others = [word for word in BACKGROUND.split() if word not in named]
        if others:
            beside = self.backbone.encode_labels(LabelSet.of(others), problem.template).features
            self.vocabulary = torch.cat([self.vocabulary, beside])
        self.preprocess = self.backbone.preprocess.at(self.prepare_tower())

    def prepare_tower(self) -> int:
        """Open the tower's attention, and say how large its input is."""
        self.tower = AttentiveViT(self.backbone, self.name)
        return self.tower.patch * max(1, round(self.config.scale * self.side / self.tower.patch))

    @property
    def price(self) -> float:
        """The clean view, the large input, and one crop, as pictures mostly have one or two likely labels."""
        return super().price + (self.preprocess.size / self.side) ** 2 + (self.config.candidates > 0)

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        return {"view": torch.stack([self.score(pixels) for pixels in self.look(encoded)])}

    def where(self, encoded: Encoded) -> Tensor:
        """The smoothed patch scores of each label."""
        return torch.stack([self.refined(pixels)[: len(self.text)] for pixels in self.look(encoded)])

    def look(self, encoded: Encoded) -> Tensor:
        """The images (B, 3, S, S) at the size that patches are read at."""
        first = torch.zeros(len(encoded), 1, dtype=torch.long)
        pixels = encoded.pixels(ViewSpec(count=1), self.preprocess, first)[:, 0]
        return torch.from_numpy(pixels).to(self.text.features.device)

    def score(self, pixels: Tensor) -> Tensor:
        """Scores (C,) of one image (3, S, S)."""
        maps, labels = self.refined(pixels), len(self.text)
        local = maps[:labels].amax(dim=(1, 2))
        bar = maps.min() + self.config.again_from * (maps.max() - maps.min())
        likely = [i for i in local.argsort(descending=True).tolist() if local[i] > bar]
        likely = likely[: self.config.candidates]
        if likely:
            seen = self.again(pixels, scaled(maps[likely]) > 0.5)  # (n, D)
            p = self.shares(seen)[torch.arange(len(likely)), likely]
            local[likely] = (local[likely] + p) / 2
        return local

    def shares(self, features: Tensor) -> Tensor:
        """Probabilities (..., K) of labels and background for features (..., D)."""
        return (self.logit_scale * features @ self.vocabulary.T).softmax(dim=-1)

    def refined(self, pixels: Tensor) -> Tensor:
        """Smoothed scores (K, h, w) of labels and background at the locations of one image (3, S, S)."""
        features, affinity = self.locations(pixels)  # (h, w, D), (hw, hw)
        h, w, _ = features.shape
        p = self.shares(features.flatten(0, 1))  # (hw, K)
        maps = (affinity @ p).T.reshape(-1, h, w)
        inside = above_mean(maps)
        inside = boxes_of(inside) if self.config.boxes else inside
        return (affinity @ (inside.flatten(1).T * p)).T.reshape(-1, h, w)

    def locations(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Unit features (h, w, D), and how much each location hears of each other (hw, hw)."""
        features, attention = self.tower.patches(pixels)  # (blocks, hw, hw)
        heard = (attention > attention.mean(dim=(1, 2), keepdim=True)).sum(dim=0)
        enough = heard >= math.ceil(self.config.votes * len(attention) - 1e-9)
        # the three blocks before the last, or what there is of them
        late = attention[-4:-1] if len(attention) > 1 else attention
        return features, enough * late.mean(dim=0)

    def again(self, pixels: Tensor, regions: Tensor) -> Tensor:
        """Unit features (n, D) of the crops around regions (n, h, w), the class token kept to the region itself."""
        crops, inside = [], []
        for region in regions:
            top, bottom, left, right = ends_of(region)
            crops.append(self.crop(pixels, region))
            cut = region[top : bottom + 1, left : right + 1]
            inside.append(F.interpolate(cut[None, None].float(), self.tower.grid)[0, 0] > 0.5)
        return self.tower.regions(torch.stack(crops), torch.stack(inside))

    def crop(self, pixels: Tensor, region: Tensor) -> Tensor:
        """The part (3, S', S') of an image (3, S, S) around a region (h, w) of its map, at the model's own size."""
        (top, bottom, left, right), (h, w), size = ends_of(region), region.shape, pixels.shape[-1]
        rows = slice(top * size // h, max(top * size // h + 1, (bottom + 1) * size // h))
        columns = slice(left * size // w, max(left * size // w + 1, (right + 1) * size // w))
        return F.interpolate(pixels[None, :, rows, columns], (self.side, self.side), mode="bilinear")[0]


def scaled(maps: Tensor) -> Tensor:
    """Maps (K, h, w), each from its least value, 0, to its greatest, 1; a flat one is 0."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp(min=1e-30)


def above_mean(maps: Tensor) -> Tensor:
    """The cells (K, h, w) above the mean of their own map; all cells of a flat one."""
    values = scaled(maps)
    cells = values > values.mean(dim=(1, 2), keepdim=True)
    return cells | ~cells.any(dim=2, keepdim=True).any(dim=1, keepdim=True)


def boxes_of(cells: Tensor) -> Tensor:
    """The cells (K, h, w) inside the boxes around each part of a map that hangs together, corners touching too."""
    _, h, w = cells.shape
    y, x = torch.meshgrid(*(torch.arange(n, device=cells.device) for n in (h, w)), indexing="ij")
    # each cell learns the ends of its part from its neighbours, until nobody learns more
    ends = torch.stack([-y, y, -x, x]).float()  # (4, h, w)
    held = torch.where(cells[:, None], ends, none := -float(h + w))  # (K, 4, h, w)
    while True:
        held, before = torch.where(cells[:, None], F.max_pool2d(held, 3, stride=1, padding=1), none), held
        if torch.equal(held, before):
            break
    shape, ends_of_cells = (len(cells), h, h, w, w), held.permute(1, 0, 2, 3)[:, cells].long().abs()
    parts = torch.cat([cells.nonzero()[:, :1].T, ends_of_cells]).cpu().numpy()
    boxes = np.unravel_index(np.unique(np.ravel_multi_index(tuple(parts), shape)), shape)
    inside = np.zeros(cells.shape, bool)
    for label, top, bottom, left, right in zip(*boxes, strict=True):
        inside[label, top : bottom + 1, left : right + 1] = True
    return torch.from_numpy(inside).to(cells.device)


def ends_of(cells: Tensor) -> tuple[int, int, int, int]:
    """First and last row, first and last column, of the cells (h, w) of one map, of which there is at least one."""
    rows, columns = cells.any(dim=1).nonzero(), cells.any(dim=0).nonzero()
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
