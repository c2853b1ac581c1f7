"""Images of a joint step, with the targets from captions and classifier; nothing here is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.compose import mosaic
from training.images import crops
from training.judge import Judge, in_windows
from training.material import Material, Rows
from training.recipe import Recipe
from training.rule import confident_mean
from training.supervision import NounSupervision, Targets
from training.windows import CELL

UNIT = 196  # large images are measured in squares of this size


def as_many(size: int, units: float) -> int:
    """Number of images of a size with as many pixels as ``units`` images of 196 x 196; at least two."""
    return max(2, round(units * (UNIT / size) ** 2))


WINDOW = 3  # locations per side of a window


@dataclass
class Whole:
    """Images to be encoded as a whole: single images first, then pairs of them."""

    pixels: Tensor  # (n + pairs, 3, side, side)
    flickr: Rows  # the first images, which have captions
    probability: Tensor  # (n + pairs, 1000), the classifier's
    targets: Targets
    shown: NDArray[np.bool_]  # (n + pairs, nouns)


@dataclass
class Large:
    """Large images, single or composed, to be encoded by windows."""

    pixels: Tensor  # (n, 3, size, size)
    layout: tuple[int, int]  # rows and columns of parts
    images: Tensor  # (parts,) image index of each part
    judged: Tensor  # (parts, V, 1000), the classifier's probabilities in the windows of each part
    parts: Targets
    pictures: Targets


class Pictures:
    """Samples images for a step from the training images."""

    def __init__(
        self,
        material: Material,
        nouns: NounSupervision,
        judge: Judge,
        recipe: Recipe,
        host: np.random.Generator,
    ) -> None:
        self.material, self.nouns, self.judge, self.recipe, self.host = material, nouns, judge, recipe, host
        self.device = material.device
        self.rng = torch.Generator(self.device).manual_seed(recipe.seed)

    def drawn(self, n: int, imagenet: float, labeled: float) -> tuple[Rows, Rows]:
        """Sample training images: captioned ones, and others."""
        return self.material.split.drawn(n, imagenet, labeled, self.host)

    def crops(self, rows: Rows, size: int, smallest: float, whole: float) -> tuple[Tensor, Tensor]:
        """Random crops of images, and their locations."""
        return crops(self.material.pool(rows), size, smallest, whole, self.rng)

    def rows(self, rows: Rows) -> Tensor:
        """Rows on the device."""
        return torch.from_numpy(rows).to(self.device)

    @torch.no_grad()
    def whole(self) -> Whole:
        """A batch for the losses on one vector."""
        r = self.recipe
        flickr, others = self.drawn(r.batch, r.imagenet_share, r.labeled_share)
        batch = np.concatenate([flickr, others])
        x, boxes = self.crops(batch, r.side, r.smallest, r.whole)
        grid = (r.side // CELL, r.side // CELL)
        judged = self.judge(batch, boxes, grid)
        windows, picture = in_windows(judged, 2), in_windows(judged, 0)[:, 0]
        probability = torch.lerp(picture, confident_mean(windows), r.verdict)
        targets = self.nouns(self.rows(batch), picture, windows)
        shown = self.nouns.shown[batch]
        pairs = self.host.permuted(np.tile(np.arange(len(batch)), (2, 1)), axis=1).T  # (n, 2)
        pairs = pairs[: int(len(batch) * r.pairs)]
        if len(pairs):
            members = self.rows(np.ascontiguousarray(pairs))
            both = x[members.flatten()]
            middle = len(pairs) // 2 * 2  # half side by side, half stacked
            halves = ((both[:middle], 1, 2), (both[middle:], 2, 1))
            made = [mosaic(part, down, across, r.side) for part, down, across in halves if len(part)]
            x = torch.cat([x, *made]).contiguous(memory_format=torch.channels_last)
            targets = targets.joined(targets.composed(members))
            probability = torch.cat([probability, probability[members].mean(1)])
            shown = np.concatenate([shown, shown[pairs].any(1)])
        return Whole(x, flickr, probability, targets, shown)

    @torch.no_grad()
    def by_windows(self) -> tuple[Large, Large]:
        """Single and composed images, equally many, all of one randomly chosen size."""
        size = int(self.host.choice(self.recipe.sizes))
        count = as_many(size, self.recipe.large)
        return self._large(size, count), self._composed(size, count)

    def _large(self, size: int, count: int) -> Large:
        """Large single images."""
        r = self.recipe
        rows = np.concatenate(self.drawn(count, r.imagenet_share, r.labeled_share))
        x, boxes = self.crops(rows, size, r.large_smallest, r.large_whole)
        judged, targets = self._judged(rows, boxes, (size // CELL, size // CELL))
        return Large(x, (1, 1), self.rows(rows), judged, targets, targets)

    def _composed(self, size: int, count: int) -> Large:
        """Images composed of several; the classifier judges each part separately."""
        r, cells = self.recipe, size // CELL
        fitting = [(down, across) for down, across in r.layouts if not (cells % down or cells % across)]
        down, across = fitting[self.host.integers(len(fitting))]
        parts = down * across
        drawn = self.drawn(count * parts, r.composed_imagenet, r.composed_labeled)
        rows = self.host.permutation(np.concatenate(drawn))
        rows = rows[: len(rows) // parts * parts]  # the last may be incomplete
        x, boxes = self.crops(rows, r.side, r.large_smallest, r.large_whole)
        judged, targets = self._judged(rows, boxes, (cells // down, cells // across))
        members = torch.arange(len(rows), device=self.device).view(-1, parts)
        return Large(
            mosaic(x, down, across, size), (down, across), self.rows(rows), judged,
            targets.apart(members), targets.composed(members),
        )  # fmt: skip

    def _judged(self, rows: Rows, boxes: Tensor, grid: tuple[int, int]) -> tuple[Tensor, Targets]:
        """The classifier's probabilities in the windows of crops, and the targets of each crop."""
        logits = self.judge(rows, boxes, grid)
        judged, picture = in_windows(logits, WINDOW), in_windows(logits, 0)[:, 0]
        return judged, self.nouns(self.rows(rows), picture, judged)
