"""All views of many images on a device: bit-identical to `mltta.images.views`, rendered on the device.

The random numbers are the same, so each view shows the same part of its image. Resampling uses the same integer
arithmetic. AugMix may differ from the CPU's by a level in some pixels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mltta.accelerate.augmix import mix_views
from mltta.accelerate.boxes import Boxes, upload
from mltta.accelerate.draws import draw_numbers
from mltta.errors import ConfigError, ImageError
from mltta.images.augmix import AUGMIX_DRAWS, draw_plans
from mltta.images.geometry import CROP_DRAWS, Floats, Ints, clean_axes, crop_boxes, working_size
from mltta.images.specs import ViewSpec
from mltta.images.views import Preprocess
from mltta.images.views import draw_numbers as plain_numbers

# Bytes needed by AugMix per pixel of a view.
_AUGMIX_BYTES = 80
_FIRST_TRIES = 4


class DeviceViews:
    """Renders the views of images on a device, identical to those of `render_views`.

    Args:
        dtype: dtype of the views.
        channels_last: store the views as (B, N, S, S, 3).
        max_bytes: approximate memory limit, besides the images and the views.
        own_draws: draw the random numbers of a batch at once, instead of with NumPy's generators one by one.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        device: str | torch.device,
        dtype: torch.dtype = torch.float32,
        *,
        channels_last: bool = False,
        max_bytes: int = 1 << 30,
        own_draws: bool = True,
    ) -> None:
        self.preprocess, self.device, self.dtype = preprocess, torch.device(device), dtype
        self.channels_last, self.max_bytes = channels_last, max_bytes
        self.own_draws = own_draws
        # (3, 256) levels, and their normalized values
        self._levels = torch.arange(256, dtype=torch.uint8).repeat(3, 1).to(self.device)
        shown = _normalised(torch.arange(256).view(1, 256, 1, 1).expand(-1, -1, 1, 3), preprocess)
        self._shown = shown.view(3, 256).to(self.device, dtype)

    @torch.no_grad()
    def render(self, images: Sequence[Tensor], spec: ViewSpec, seed: int, ids: Sequence[str]) -> Tensor:
        """All views (B, N, 3, S, S), normalized for the model, of RGB images (H, W, 3), uint8, on any device.

        Args:
            ids: seed of each image's randomness, usually its `mltta.images.decode.image_id`.
        """
        _check(images, spec, ids)
        count, side, cubic = spec.count, self.preprocess.size, self.preprocess.interpolation == "bicubic"
        shape = (side, side, 3) if self.channels_last else (3, side, side)
        views = torch.empty(len(images), count, *shape, dtype=self.dtype, device=self.device)
        if len(images):
            sizes = np.array([(image.shape[1], image.shape[0]) for image in images])
            pixels = self._together(images)
            clean = np.array([clean_axes((w, h), self.preprocess) for w, h in sizes.tolist()])
            self._resample(pixels, sizes, clean[:, None], views, 0, cubic)
            if count > 1:
                source, small = self._working_copies(pixels, sizes, spec)
                crops = self._draw_crops(small, spec, seed, ids)
                if spec.augmix:
                    self._mix(source, small, crops, views, seed, ids)
                else:
                    self._resample(source, small, crops, views, 1)
        return views.permute(0, 1, 4, 2, 3) if self.channels_last else views

    def _together(self, images: Sequence[Tensor]) -> Tensor:
        """Copy all pixels to the device, one image after another."""
        flat = [image.reshape(-1) for image in images]
        if self.device.type != "cuda" or flat[0].is_cuda:
            return torch.cat([image.to(self.device) for image in flat])
        pinned = torch.empty(sum(map(len, flat)), dtype=torch.uint8, pin_memory=True)
        # not with torch, whose threads would share this copy and then spin on cores that decode photos
        np.concatenate([image.numpy() for image in flat], out=pinned.numpy())
        return pinned.to(self.device, non_blocking=True)

    def _resample(
        self, source: Tensor, sizes: Ints, axes: Ints, views: Tensor, first: int, cubic: bool = False
    ) -> None:
        """Render views from index `first`: axes (B, n, 2, 5) of images of these sizes, normalized."""
        each, side = axes.shape[1], self.preprocess.size
        rows = np.arange(len(sizes))[:, None] * views.shape[1] + first + np.arange(each)
        stride = 3 * side if self.channels_last else side
        boxes = _boxes(sizes, axes, rows.ravel() * 3 * side * side, (side, side), stride)
        self._launch(source, boxes, views, self._shown, cubic=cubic, channels_last=self.channels_last)

    def _launch(self, source: Tensor, boxes: Boxes, out: Tensor, table: Tensor, **how: bool) -> None:
        """Launch the kernels for as many boxes at once as fit into memory."""
        from mltta.accelerate.kernels import launch  # needs Triton

        for part in boxes.chunks(self.max_bytes):
            launch(source, part, out, table, **how)

    def _mix(
        self, source: Tensor, sizes: Ints, axes: Ints, views: Tensor, seed: int, ids: Sequence[str]
    ) -> None:
        """Render crops and apply AugMix to each, as many at once as fit into memory."""
        each, side = axes.shape[1], self.preprocess.size
        plans = draw_plans(self._numbers(seed, ids, each + 1, "augmix", AUGMIX_DRAWS))
        place = np.arange(len(sizes) * each) * 3 * side * side
        boxes = _boxes(sizes, axes, place, (side, side), 3 * side)
        step = max(1, self.max_bytes // (_AUGMIX_BYTES * side * side))
        for start in range(0, len(boxes), step):
            part = boxes[start : start + step]
            part.place[:] -= place[start]
            levels = torch.empty(len(part), side, side, 3, dtype=torch.uint8, device=self.device)
            self._launch(source, part, levels, self._levels)
            numbers = np.arange(start, start + len(part))
            mixed = mix_views(levels.permute(0, 3, 1, 2), plans.pick(numbers)).permute(0, 2, 3, 1)
            normalised = _normalised(mixed, self.preprocess).to(self.dtype)
            shown = normalised.permute(0, 2, 3, 1) if self.channels_last else normalised
            rows = upload(numbers // each * (each + 1) + 1 + numbers % each, self.device)
            views.flatten(0, 1).index_copy_(0, rows, shown)

    def _working_copies(self, source: Tensor, sizes: Ints, spec: ViewSpec) -> tuple[Tensor, Ints]:
        """Downscale large images to the resolution that their crops need; returns all pixels and the sizes."""
        small = np.array([working_size((w, h), spec.working_size) for w, h in sizes.tolist()])
        if (small == sizes).all():
            return source, sizes
        axes = np.zeros((len(sizes), 1, 2, 5), np.int64)
        axes[:, 0, :, 1], axes[:, 0, :, 2] = sizes, small
        copies = torch.empty(int(3 * small.prod(1).sum()), dtype=torch.uint8, device=self.device)
        boxes = _boxes(sizes, axes, _starts(small), small, 3 * small[:, 0])
        self._launch(source, boxes, copies, self._levels)
        return copies, small

    def _draw_crops(self, sizes: Ints, spec: ViewSpec, seed: int, ids: Sequence[str]) -> Ints:
        """Draw the crops of images of these sizes: resampling along x and y, (B, N - 1, 2, 5)."""
        each, args = spec.count - 1, (spec.scale, spec.ratio, spec.flip)
        owner = np.arange(len(sizes)).repeat(each)
        numbers = self._numbers(seed, ids, spec.count, "crop", 2 * _FIRST_TRIES + 3)
        crops, left_over = crop_boxes(numbers, sizes[owner], *args)
        again = np.unique(owner[left_over])
        if len(again):  # few need more than four tries
            numbers = self._numbers(seed, [ids[i] for i in again], spec.count, "crop", CROP_DRAWS)
            place = np.searchsorted(again, owner[left_over]) * each + left_over % each
            crops[left_over], _ = crop_boxes(numbers[place], sizes[owner[left_over]], *args)
        axes = np.zeros((len(owner), 2, 5), np.int64)
        left, top, width, height, flip = crops.T
        axes[:, 0, 0], axes[:, 0, 1], axes[:, 0, 4] = left, width, flip
        axes[:, 1, 0], axes[:, 1, 1] = top, height
        axes[:, :, 2] = self.preprocess.size
        return axes.reshape(len(sizes), each, 2, 5)

    def _numbers(self, seed: int, ids: Sequence[str], count: int, stream: str, draws: int) -> Floats:
        """Random numbers for views 1 to count - 1 of each image, (B * (count - 1), draws)."""
        if self.own_draws:
            return draw_numbers(seed, ids, count, stream, draws)
        return np.concatenate([plain_numbers(seed, id, range(1, count), stream, draws) for id in ids])


def _normalised(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """Levels (N, S, S, 3) as in `normalise_levels` of `mltta.images.views`, bit-identical."""
    mean, std = (
        torch.tensor(v, device=pixels.device)[:, None, None] for v in (preprocess.mean, preprocess.std)
    )
    views = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return views.div_(255).sub_(mean).div_(std)


def _starts(sizes: Ints) -> Ints:
    """Offset of each image's pixels in the concatenation."""
    return np.cumsum([0, *(3 * sizes.prod(1))])[:-1]


def _boxes(sizes: Ints, axes: Ints, place: Ints, kept: Ints | tuple[int, int], stride: Ints | int) -> Boxes:
    """Boxes with axes (B, n, 2, 5) for images of these sizes, n per image."""
    each = axes.shape[1]
    total = len(sizes) * each
    return Boxes(
        _starts(sizes).repeat(each),
        sizes[:, 0].repeat(each),
        axes.reshape(total, 2, 5),
        np.broadcast_to(np.asarray(kept, np.int64), (total, 2)),
        place,
        np.broadcast_to(np.asarray(stride, np.int64), total),
    )


def _check(images: Sequence[Tensor], spec: ViewSpec, ids: Sequence[str]) -> None:
    """Raise for input that cannot be rendered here."""
    if spec.generated:
        raise ConfigError("generated views are separate images: use mltta.images.views.render_views")
    if len(ids) != len(images):
        raise ConfigError(f"{len(ids)} ids for {len(images)} images: give one id per image")
    for image in images:
        if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.numel():
            found = f"tensor of shape {'x'.join(map(str, image.shape))}, {image.dtype}"
            raise ImageError(f"{found}: expected RGB pixels (H, W, 3), torch.uint8")
