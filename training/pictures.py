"""The pictures of a joint step, and what captions and classifier say of them; nothing here is learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.compose import mosaic
from training.images import crops
from training.judge import CELL, Judges, in_windows
from training.material import Material, Rows
from training.recipe import Recipe
from training.rule import confident_mean
from training.supervision import NounSupervision, Targets

UNIT = 224  # pixels of large pictures are counted in squares of this side


def as_many(size: int, units: float) -> int:
    """How many pictures of a size have the pixels of so many of 224 x 224; two at least."""
    return max(2, round(units * (UNIT / size) ** 2))


def geometry(size: int, grid: int) -> tuple[int, int]:
    """Window and stride for an input of a size whose parts have so many locations a side.

    As where local views are read: windows of 3 up to about 350 pixels, then of 4.
    """
    return (3 if size < 400 else 4), (1 if grid <= 8 else 2)


@dataclass
class Whole:
    """Pictures, each to be seen as one: images first, then pairs of them."""

    pixels: Tensor  # (n + pairs, 3, side, side)
    flickr: Rows  # the first images, which have captions
    probability: Tensor  # (n + pairs, 1000), the classifier's
    targets: Targets
    shown: NDArray[np.bool_]  # (n + pairs, nouns)


@dataclass
class Large:
    """Large pictures, each of one image or composed of several, to be seen by windows."""

    pixels: Tensor  # (n, 3, size, size)
    layout: tuple[int, int]  # rows and columns of parts
    images: Tensor  # (parts,) which image each part is
    judged: Tensor  # (parts, V, 1000), the classifier's probabilities in the windows of each part
    parts: Targets
    pictures: Targets


class Pictures:
    """Draws pictures out of the training images."""

    def __init__(
        self,
        material: Material,
        nouns: NounSupervision,
        judges: Judges,
        recipe: Recipe,
        host: np.random.Generator,
    ) -> None:
        self.material, self.nouns, self.judges, self.recipe, self.host = material, nouns, judges, recipe, host
        self.device = material.device
        self.rng = torch.Generator(self.device).manual_seed(recipe.seed)

    def drawn(self, n: int, imagenet: float) -> tuple[Rows, Rows]:
        """Images to learn from."""
        return self.material.split.drawn(n, imagenet, self.host)

    def crops(self, rows: Rows, size: int, smallest: float, whole: float) -> tuple[Tensor, Tensor]:
        """Random crops of images, and where they lie."""
        return crops(self.material.pool(rows), size, smallest, whole, self.rng)

    def rows(self, rows: Rows) -> Tensor:
        """Rows on the device."""
        return torch.from_numpy(rows).to(self.device)

    @torch.no_grad()
    def whole(self) -> Whole:
        """A batch for the losses on one vector."""
        r = self.recipe
        flickr, samples = self.drawn(r.batch, r.imagenet_share)
        batch = np.concatenate([flickr, samples])
        x, boxes = self.crops(batch, r.side, r.smallest, r.whole)
        grid = (r.side // CELL, r.side // CELL)
        windows = in_windows(self.judges.windows(batch, boxes, grid), 2)
        picture = in_windows(self.judges.whole(batch, boxes, grid), 0)[:, 0]
        probability = torch.lerp(picture, confident_mean(windows), r.verdict)
        targets = self.nouns(self.rows(batch), picture, windows)
        shown = self.nouns.shown[batch]
        pairs = self.host.permuted(np.tile(np.arange(len(batch)), (2, 1)), axis=1).T  # (n, 2)
        pairs = pairs[: int(len(batch) * r.pairs)]
        if len(pairs):
            members = self.rows(np.ascontiguousarray(pairs))
            both = x[members.flatten()]
            middle = len(pairs) // 2 * 2  # half of them side by side, the others above each other
            halves = ((both[:middle], 1, 2), (both[middle:], 2, 1))
            made = [mosaic(part, down, across, r.side) for part, down, across in halves if len(part)]
            x = torch.cat([x, *made]).contiguous(memory_format=torch.channels_last)
            targets = targets.joined(targets.composed(members))
            probability = torch.cat([probability, probability[members].mean(1)])
            shown = np.concatenate([shown, shown[pairs].any(1)])
        return Whole(x, flickr, probability, targets, shown)

    @torch.no_grad()
    def by_windows(self) -> tuple[Large, Large]:
        """Pictures of one image each and as many composed ones, all of one drawn size."""
        size = int(self.host.choice(self.recipe.sizes))
        count = as_many(size, self.recipe.large)
        return self._large(size, count), self._composed(size, count)

    def _large(self, size: int, count: int) -> Large:
        """Pictures of one image each."""
        r = self.recipe
        rows = np.concatenate(self.drawn(count, r.imagenet_share))
        x, boxes = self.crops(rows, size, r.large_smallest, r.large_whole)
        judged, targets = self._judged(rows, boxes, (size // CELL, size // CELL), size)
        return Large(x, (1, 1), self.rows(rows), judged, targets, targets)

    def _composed(self, size: int, count: int) -> Large:
        """Pictures of several images; the classifier judges each as if it stood alone."""
        r, cells = self.recipe, size // CELL
        fitting = [(down, across) for down, across in r.layouts if not (cells % down or cells % across)]
        down, across = fitting[self.host.integers(len(fitting))]
        parts = down * across
        rows = self.host.permutation(np.concatenate(self.drawn(count * parts, r.composed_imagenet)))
        rows = rows[: len(rows) // parts * parts]  # few data may not fill them all
        x, boxes = self.crops(rows, r.side, r.large_smallest, r.large_whole)
        judged, targets = self._judged(rows, boxes, (cells // down, cells // across), size)
        members = torch.arange(len(rows), device=self.device).view(-1, parts)
        return Large(
            mosaic(x, down, across, size), (down, across), self.rows(rows), judged,
            targets.apart(members), targets.composed(members),
        )  # fmt: skip

    def _judged(self, rows: Rows, boxes: Tensor, grid: tuple[int, int], size: int) -> tuple[Tensor, Targets]:
        """The classifier's probabilities in the windows of crops, and what is known of each crop."""
        judged = in_windows(self.judges.windows(rows, boxes, grid), *geometry(size, max(grid)))
        picture = in_windows(self.judges.whole(rows, boxes, grid), 0)[:, 0]
        return judged, self.nouns(self.rows(rows), picture, judged)
