"""All views of many images on a device: the pictures of `mltta.views`, made by matrix products.

The random numbers are the same, so each view shows the same part of its image, and its pixels agree with
Pillow's up to rounding: in float32 nearly all are equal, in float16 nearly all within one level of 255.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mltta.device_augmix import AUGMIX_DRAWS, draw_plans, mix_views
from mltta.device_draws import CROP_DRAWS, Ints, draw_crops, draw_numbers
from mltta.device_resample import Axis, resample, upload
from mltta.errors import ConfigError, ImageError
from mltta.views import Preprocess, ViewSpec, render_views


class DeviceViews:
    """Renders the views of images on a device, equal to those of `render_views` up to rounding.

    Args:
        dtype: of the views; the products run in float32 for float32, and in float16 for all others.
        channels_last: lay the views out in memory as (B, N, S, S, 3).
        max_bytes: about how much memory may be used beside the images and the views.

    Example:
        >>> device_views = DeviceViews(Preprocess(), "cpu", torch.float32)
        >>> views = device_views.render([torch.zeros(3, 4, 3, dtype=torch.uint8)], ViewSpec(count=2), 0, ["id"])
        >>> tuple(views.shape)
        (1, 2, 3, 224, 224)
    """

    def __init__(
        self,
        preprocess: Preprocess,
        device: str | torch.device,
        dtype: torch.dtype = torch.float16,
        *,
        channels_last: bool = False,
        max_bytes: int = 1 << 30,
    ) -> None:
        self.preprocess, self.device, self.dtype = preprocess, torch.device(device), dtype
        self.channels_last, self.max_bytes = channels_last, max_bytes
        self._compute = torch.float32 if dtype == torch.float32 else torch.float16
        mean, std = (torch.tensor(values, device=self.device) for values in (preprocess.mean, preprocess.std))
        self._factor, self._offset = 1 / (255 * std), -mean / std

    @torch.no_grad()
    def render(self, images: Sequence[Tensor], spec: ViewSpec, seed: int, ids: Sequence[str]) -> Tensor:
        """Render all views of the images, normalised for the model.

        Args:
            images: RGB pixels, uint8, each (H, W, 3), on any device.
            ids: what the randomness of each image hangs on, by custom its `mltta.images.image_id`.

        Returns:
            views of shape (B, N, 3, S, S).
        """
        _check(images, spec, ids)
        count, side, sizes = spec.count, self.preprocess.size, [_size(image) for image in images]
        boxes = self._draw_boxes(sizes, spec, seed, ids)
        plans = draw_plans(draw_numbers(seed, ids, count if spec.augmix else 1, "augmix", AUGMIX_DRAWS))
        if self.channels_last:
            views = torch.empty(len(images), count, side, side, 3, dtype=self.dtype, device=self.device)
        else:
            views = torch.empty(len(images), count, 3, side, side, dtype=self.dtype, device=self.device)
            views = views.permute(0, 1, 3, 4, 2)  # (B, N, S, S, 3) in any case
        for batch in self._batches(sizes, spec):
            numbers = np.array(batch)
            own = [images[number] for number in batch]
            # Autocast would run the products in fewer bits than whole levels need.
            with torch.autocast(self.device.type, enabled=False):
                for levels, owner, j in self._levels(own, boxes[numbers], spec):
                    if spec.augmix and j.any():
                        pixels = levels.permute(0, 3, 1, 2).to(torch.uint8)
                        own_plans = plans.pick(numbers[owner] * (count - 1) + j - 1)
                        levels = mix_views(pixels, own_plans).permute(0, 2, 3, 1)
                    normalised = torch.addcmul(self._offset, levels, self._factor).to(self.dtype)
                    rows = upload(numbers[owner] * count + j, self.device)
                    views.flatten(0, 1).index_copy_(0, rows, normalised)
        for number in range(len(images)):
            if self._is_too_long(sizes[number], spec):
                picture = Image.fromarray(images[number].cpu().numpy())
                slow = render_views(picture, spec, self.preprocess, seed=seed, image_id=ids[number])
                views[number] = slow.permute(0, 2, 3, 1).to(self.device, self.dtype)
        return views.permute(0, 1, 4, 2, 3)

    def _levels(
        self, images: list[Tensor], boxes: Ints, spec: ViewSpec
    ) -> Iterator[tuple[Tensor, Ints, Ints]]:
        """Make the views of images sorted by size: first the clean ones, then the crops.

        Yields:
            whole levels of shape (V, S, S, 3), and for each the number of its image and of its view.
        """
        side, owners = self.preprocess.size, np.arange(len(images))
        groups = [self._stack(list(group)) for _, group in groupby(images, _size)]
        levels, order = resample(groups, boxes[:, 0], owners, side, side, self.preprocess.interpolation)
        yield levels, owners[order], np.zeros_like(order)
        if spec.count == 1:
            return
        distinct = dict.fromkeys(map(_size, images))
        groups = [_working_copy(group, size, spec) for group, size in zip(groups, distinct, strict=True)]
        step = max(1, self.max_bytes // sum(self._memory(_size(image), spec).crop for image in images))
        for first in range(1, spec.count, step):
            some = np.arange(first, min(first + step, spec.count))
            owner, j = owners.repeat(len(some)), np.tile(some, len(images))
            levels, order = resample(groups, boxes[owner, j], owner, side, side, "bilinear")
            yield levels, owner[order], j[order]

    def _stack(self, images: list[Tensor]) -> Tensor:
        """Bring equally large images to the device, (B, 3, H, W), with sides rounded up for quick products."""
        height, width, _ = images[0].shape
        pixels = torch.stack([image.to(self.device, non_blocking=True) for image in images])
        stack = torch.zeros(
            len(images), 3, _rounded_up(height), _rounded_up(width), dtype=self._compute, device=self.device
        )
        stack[:, :, :height, :width] = pixels.permute(0, 3, 1, 2)
        return stack

    def _draw_boxes(
        self, sizes: list[tuple[int, int]], spec: ViewSpec, seed: int, ids: Sequence[str]
    ) -> Ints:
        """Say for all views how they come from their images along x and y, lines of `Axis`, (B, N, 2, 5)."""
        boxes = np.zeros((len(sizes), spec.count, 2, 5), np.int64)
        numbers = draw_numbers(seed, ids, spec.count, "crop", CROP_DRAWS)
        small = np.array([_working_size(size, spec) for size in sizes]).reshape(-1, 2)
        crops = draw_crops(numbers, small.repeat(spec.count - 1, 0), spec.scale, spec.ratio, spec.flip)
        left, top, width, height, flip = crops.reshape(len(sizes), spec.count - 1, 5).transpose(2, 0, 1)
        boxes[:, 1:, 0, 0], boxes[:, 1:, 0, 1], boxes[:, 1:, 0, 4] = left, width, flip
        boxes[:, 1:, 1, 0], boxes[:, 1:, 1, 1] = top, height
        boxes[:, 1:, :, 2] = self.preprocess.size
        boxes[:, 0] = np.array([_clean_axes(*size, self.preprocess) for size in sizes]).reshape(-1, 2, 5)
        return boxes

    def _batches(self, sizes: list[tuple[int, int]], spec: ViewSpec) -> Iterator[list[int]]:
        """Divide the images, sorted by size, into batches that fit into memory."""
        batch: list[int] = []
        taken = 0
        for number in sorted(range(len(sizes)), key=sizes.__getitem__):
            if self._is_too_long(sizes[number], spec):
                continue
            memory = self._memory(sizes[number], spec)
            needed = memory.pixels + memory.products + memory.crop * (spec.count - 1)
            if batch and taken + needed > self.max_bytes:
                yield batch
                batch, taken = [], 0
            batch.append(number)
            taken += needed
        if batch:
            yield batch

    def _is_too_long(self, size: tuple[int, int], spec: ViewSpec) -> bool:
        """Tell an image, say a line of a million pixels, whose weights alone would fill the memory."""
        memory = self._memory(size, spec)
        return max(memory.products, memory.crop) > self.max_bytes

    def _memory(self, size: tuple[int, int], spec: ViewSpec) -> _Memory:
        """Estimate what an image of that size takes."""
        (width, height), (w, h), side = size, _working_size(size, spec), self.preprocess.size
        number = self._compute.itemsize
        pixels = (3 + 6 * number) * width * height
        products = number * side * (width + height + 3 * max(width, height)) + 400 * (width + height)
        if (w, h) != size:
            products += number * (w * width + h * height + 3 * max(w * height, h * width))
        product = number * side * (w + h + 3 * max(w, h)) + 200 * (w + h + side)
        levels, after = 3 * number * side * side, (80 if spec.augmix else 12 + 3 * number) * side * side
        return _Memory(pixels, products, levels + max(product, after))


class _Memory(NamedTuple):
    """Bytes of an image, of the products that make its clean view and working copy, and of one crop."""

    pixels: int
    products: int
    crop: int


def _size(image: Tensor) -> tuple[int, int]:
    """Width and height, as Pillow has them."""
    return image.shape[1], image.shape[0]


def _rounded_up(side: int) -> int:
    """Give the next multiple of 8: on GPUs, products of other sizes are half as fast."""
    return -(-side // 8) * 8


def _clean_axes(width: int, height: int, preprocess: Preprocess) -> tuple[Axis, Axis]:
    """Say how view 0 comes from its image, by the sums of `mltta.views`."""
    size, short, long = preprocess.size, min(width, height), max(width, height)
    if preprocess.resize_mode == "squash":
        return Axis(0, width, size), Axis(0, height, size)
    if preprocess.resize_mode == "longest":
        w, h = (max(1, round(side / (long / size))) for side in (width, height))
        return Axis(0, width, w, -((size - w) // 2)), Axis(0, height, h, -((size - h) // 2))
    new_long = int(size * long / short)
    w, h = (size, new_long) if width <= height else (new_long, size)
    left, top = round((w - size) / 2), round((h - size) / 2)
    return Axis(0, width, w, left), Axis(0, height, h, top)


def _working_copy(images: Tensor, size: tuple[int, int], spec: ViewSpec) -> Tensor:
    """Reduce equally large images (B, 3, H, W) to what their crops can show."""
    width, height = _working_size(size, spec)
    if (width, height) == size:
        return images
    box = np.array([Axis(0, size[0], width), Axis(0, size[1], height)])
    boxes, owners = box[None].repeat(len(images), 0), np.arange(len(images))
    levels, _ = resample([images], boxes, owners, _rounded_up(width), _rounded_up(height), "bilinear")
    return levels.permute(0, 3, 1, 2).contiguous()


def _working_size(size: tuple[int, int], spec: ViewSpec) -> tuple[int, int]:
    """Say how large the copy is that crops are cut from."""
    short = min(size)
    if spec.working_size is None or short <= spec.working_size:
        return size
    width, height = (round(side * spec.working_size / short) for side in size)
    return width, height


def _check(images: Sequence[Tensor], spec: ViewSpec, ids: Sequence[str]) -> None:
    """Refuse what cannot be rendered here."""
    if spec.generated:
        raise ConfigError(
            "generated views are images of their own: render them with mltta.views.render_views"
        )
    if len(ids) != len(images):
        raise ConfigError(f"{len(ids)} ids for {len(images)} images: give one id for each image")
    for image in images:
        if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.numel():
            shape = "x".join(map(str, image.shape))
            raise ImageError(
                f"tensor of shape {shape}, {image.dtype}: give RGB pixels (H, W, 3), torch.uint8"
            )
