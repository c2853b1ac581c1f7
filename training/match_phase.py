"""Third phase: the image tower alone is distilled from the frozen classifier on synthetic mixtures.

There are few training images. The model agrees with its original classifier on them, but much less on others. Two crops
blended together are always a new image for which the classifier can be queried. Meanwhile the model's output for
everyday words is kept at its value at the start of the phase, which preserves words unknown to the classifier, above
all people. Texts and scales are unchanged.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from training import losses
from training.images import crops
from training.judge import CELL, Judge
from training.loop import Finish, Losses, make_steps
from training.material import Material
from training.optimise import Optimiser
from training.pictures import as_many, geometry
from training.progress import Log
from training.recipe import Recipe
from training.towers import Towers
from training.windows import features, locations


class MatchPhase:
    """State of the phase; `run` executes the steps."""

    def __init__(self, material: Material, towers: Towers, judge: Judge, recipe: Recipe) -> None:
        self.material, self.towers, self.judge, self.recipe = material, towers, judge, recipe
        self.device, self.host = material.device, np.random.default_rng(recipe.seed)
        self.rng = torch.Generator(self.device).manual_seed(recipe.seed)
        self.before = copy.deepcopy(towers.model).requires_grad_(False)
        sentences = material.sentences
        with torch.no_grad():
            self.scale = towers.model.logit_scale.exp()
            self.classes = towers.encode(sentences.classes[:, 0]).float()  # (1000, E), by common names
            simple = towers.encode(sentences.simple.ravel()).float().view(*sentences.simple.shape, -1)
            self.nouns = F.normalize(simple.mean(1), dim=-1)  # (C, E)

    def losses(self) -> Losses:
        """All losses of one step: on whole images and, at one of the larger sizes, on windows."""
        r = self.recipe
        size = int(self.host.choice(r.sizes))
        whole = self.at(r.side, r.match_batch, 0)
        large = self.at(size, as_many(size, r.match_large), *geometry(size, size // CELL))
        return {k: (whole[k] + large[k]) / 2 for k in whole}

    def at(self, size: int, count: int, window: int, stride: int = 1) -> Losses:
        """Both losses on images of one size, in their windows; a window of 0 is the whole image."""
        pixels = self.drawn(size, count)
        with torch.no_grad(), self.towers.autocast():
            said = self.judge.now(pixels, window, stride)
            before = self.was(pixels, window, stride)
        with self.towers.autocast():
            views = features(self.towers.model, locations(self.towers.model, pixels), window, stride)
        kept = (self.scale * before @ self.nouns.T).softmax(-1)
        return {
            "match": losses.soft_cross_entropy((self.scale * views @ self.classes.T).flatten(0, 1), said),
            "keep": losses.soft_cross_entropy(
                (self.scale * views @ self.nouns.T).flatten(0, 1), kept.flatten(0, 1)
            ),
        }

    def was(self, pixels: Tensor, window: int, stride: int) -> Tensor:
        """Initial features of the windows, from upscaled images if the reference size is larger."""
        size, large = pixels.shape[-1], self.recipe.keep_size
        if not window or size >= large:
            return features(self.before, locations(self.before, pixels), window, stride)
        seen = F.interpolate(pixels, (large, large), mode="bicubic", align_corners=False)
        maps = locations(self.before, seen.contiguous(memory_format=torch.channels_last))
        return features(self.before, F.adaptive_avg_pool2d(maps, size // CELL), window, stride)

    @torch.no_grad()
    def drawn(self, size: int, count: int) -> Tensor:
        """Half mixtures of two crops, half single crops."""
        r, mixed = self.recipe, count // 2
        rows = np.concatenate(self.material.split.drawn(count + mixed, r.imagenet_share, self.host))
        pool = self.material.pool(self.host.permutation(rows))
        x, _ = crops(pool, size, r.match_smallest, r.whole, self.rng)
        share = torch.rand(mixed, 1, 1, 1, generator=self.rng, device=self.device)
        x = torch.cat([torch.lerp(x[:mixed], x[-mixed:], share), x[mixed:count]]) if mixed else x
        return x.contiguous(memory_format=torch.channels_last)

    def run(self, log: Log, deadline: float, finish: Finish) -> None:
        """Run the phase with the settings of the recipe."""
        r, t = self.recipe, self.towers
        seeing = {k: v for k, v in t.parameters().items() if k.startswith("visual.")}
        optimiser = Optimiser(
            seeing, (), lr=r.lr_match, lr_image=r.lr_match, decay=r.decay, warmup=r.warmup, pull=r.pull
        )
        make_steps("match", r.match_steps, self.losses, t, optimiser, r, log, deadline, finish)
