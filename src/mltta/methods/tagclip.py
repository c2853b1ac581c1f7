"""TagCLIP: patch scores refined by the tower's own attention; likely labels are rescored on their crop."""

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

#: background labels for patches; a word that is part of a label is left out
BACKGROUND = (
    "ground land grass tree building wall sky lake water river sea railway railroad keyboard helmet cloud house "
    "mountain ocean road rock street valley bridge sign"
)


@dataclass(frozen=True)
class TagCLIPConfig(Config):
    """The release's settings, except for the input: a square here, the image's own aspect ratio and size there."""

    scale: float = setting(2.0, "input size, times the native size", above=0, most=8)
    votes: float = setting(1 / 3, "use attention above its mean in at least this fraction of blocks", **SHARE)
    boxes: bool = setting(True, "smooth over boxes around salient cells (paper: the cells only)")
    again_from: float = setting(0.5, "rescore labels above this fraction of the score range", **SHARE)
    # the release has no such limit
    candidates: int = setting(16, "maximum number of labels to rescore, likeliest first", least=0)


@register("tagclip", "patches refined by attention, likely labels rescored on crops; ViT only (AAAI 2024)")
class TagCLIP(Method):
    """The highest patch score of each label, averaged with the score of the label's crop if it is likely.

    The paper: https://arxiv.org/abs/2312.12828. Unlike in the release, the last row and column of patches are used too.
    The paper uses 85 templates: ``template="openai"`` has 80 of them.
    """

    Config = TagCLIPConfig
    emits: Emits = "probabilities"
    requires = frozenset({"pixels"})
    default_template = "simple"
    config: TagCLIPConfig

    def __init__(self, problem: Problem, config: TagCLIPConfig):
        super().__init__(problem, config)
        if problem.backbone is None or problem.labels is None:
            raise ConfigError(f"{self.name} needs the backbone because it reads its patches")
        self.backbone = problem.backbone
        named = {word for text in problem.labels.texts for word in text.lower().split()}
        self.vocabulary = self.text.features  # (K, D), labels first
        others = [word for word in BACKGROUND.split() if word not in named]
        if others:
            beside = self.backbone.encode_labels(LabelSet.of(others), problem.template).features
            self.vocabulary = torch.cat([self.vocabulary, beside])
        self.preprocess = self.backbone.preprocess.at(self.prepare_tower())

    def prepare_tower(self) -> int:
        """Open the tower's attention, and return its input size."""
        self.tower = AttentiveViT(self.backbone, self.name)
        return self.tower.patch * max(1, round(self.config.scale * self.side / self.tower.patch))

    @property
    def price(self) -> float:
        """The clean view, the large input, and one crop: most images have one or two likely labels."""
        return super().price + (self.preprocess.size / self.side) ** 2 + (self.config.candidates > 0)

    def branches(self, encoded: Encoded) -> dict[str, Tensor]:
        return {"view": torch.stack([self.score(pixels) for pixels in self.look(encoded)])}

    def where(self, encoded: Encoded) -> Tensor:
        """The smoothed patch scores of each label."""
        return torch.stack([self.refined(pixels)[: len(self.text)] for pixels in self.look(encoded)])

    def look(self, encoded: Encoded) -> Tensor:
        """The images (B, 3, S, S) at the size used for patches."""
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
        """Probabilities (..., K) of labels and background, for features (..., D)."""
        return (self.logit_scale * features @ self.vocabulary.T).softmax(dim=-1)

    def refined(self, pixels: Tensor) -> Tensor:
        """Refined scores (K, h, w) of labels and background at each location of one image (3, S, S)."""
        features, affinity = self.locations(pixels)  # (h, w, D), (hw, hw)
        h, w, _ = features.shape
        p = self.shares(features.flatten(0, 1))  # (hw, K)
        maps = (affinity @ p).T.reshape(-1, h, w)
        inside = above_mean(maps)
        inside = boxes_of(inside) if self.config.boxes else inside
        return (affinity @ (inside.flatten(1).T * p)).T.reshape(-1, h, w)

    def locations(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Unit features (h, w, D), and the weight that each location gives to every other (hw, hw)."""
        features, attention = self.tower.patches(pixels)  # (blocks, hw, hw)
        heard = (attention > attention.mean(dim=(1, 2), keepdim=True)).sum(dim=0)
        enough = heard >= math.ceil(self.config.votes * len(attention) - 1e-9)
        # the last three blocks but one, or fewer if there are not as many
        late = attention[-4:-1] if len(attention) > 1 else attention
        return features, enough * late.mean(dim=0)

    def again(self, pixels: Tensor, regions: Tensor) -> Tensor:
        """Unit features (n, D) of crops around regions (n, h, w); the class token attends to the region only."""
        crops, inside = [], []
        for region in regions:
            top, bottom, left, right = ends_of(region)
            crops.append(self.crop(pixels, region))
            cut = region[top : bottom + 1, left : right + 1]
            inside.append(F.interpolate(cut[None, None].float(), self.tower.grid)[0, 0] > 0.5)
        return self.tower.regions(torch.stack(crops), torch.stack(inside))

    def crop(self, pixels: Tensor, region: Tensor) -> Tensor:
        """Crop (3, S', S') of an image (3, S, S) around a region (h, w) of its map, at the native input size."""
        (top, bottom, left, right), (h, w), size = ends_of(region), region.shape, pixels.shape[-1]
        rows = slice(top * size // h, max(top * size // h + 1, (bottom + 1) * size // h))
        columns = slice(left * size // w, max(left * size // w + 1, (right + 1) * size // w))
        return F.interpolate(pixels[None, :, rows, columns], (self.side, self.side), mode="bilinear")[0]


def scaled(maps: Tensor) -> Tensor:
    """Maps (K, h, w), each scaled to [0, 1]; a constant map becomes 0."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp(min=1e-30)


def above_mean(maps: Tensor) -> Tensor:
    """Cells (K, h, w) above the mean of their map; all cells of a constant map."""
    values = scaled(maps)
    cells = values > values.mean(dim=(1, 2), keepdim=True)
    return cells | ~cells.any(dim=2, keepdim=True).any(dim=1, keepdim=True)


def boxes_of(cells: Tensor) -> Tensor:
    """Cells (K, h, w) inside the bounding boxes of each map's connected components (8-connectivity)."""
    _, h, w = cells.shape
    y, x = torch.meshgrid(*(torch.arange(n, device=cells.device) for n in (h, w)), indexing="ij")
    # propagate the extent of each component between neighbours until nothing changes
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
    """First and last row, then first and last column, of a map's cells (h, w); there must be at least one cell."""
    rows, columns = cells.any(dim=1).nonzero(), cells.any(dim=0).nonzero()
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
