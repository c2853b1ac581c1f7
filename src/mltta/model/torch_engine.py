"""The torch engine: the operations that a session needs on the model's device.

A session uses only NumPy and the array API; another runtime can be added by implementing the same methods.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.model.passes import CPU_CHUNK, gradients_after_fork, side_by_side

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone
    from mltta.session.prepare import Prepared

log = logging.getLogger("mltta")
T = TypeVar("T")
# On a GPU, this many images are processed at once, if each needs at most this share of an eighth of free memory.
IMAGES_AT_ONCE, IMAGE_BYTES = 32, 32 * 2**20
#: half-precision features (N, D) by spec, on the device that computed them
Encodings = dict[AnySpec, Tensor]


class Halving:
    """Processes as many items at once as fit in memory; halves the batch permanently after running out."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, work: Callable[[Sequence[Any]], list[Any]], items: Sequence[Any]) -> list[Any]:
        """Results of all items, in order; ``work`` returns one result per item."""
        found: list[Any] = []
        while len(found) < len(items):
            part = items[len(found) : len(found) + self.size]
            try:
                found += work(part)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                torch.cuda.empty_cache()
                self.size = len(part) // 2
                log.warning("out of GPU memory; continuing with %d images at a time", self.size)
        return found


class TorchEngine:
    """Encodes photos and runs methods on one device, in batches.

    On a CPU each photo is processed alone on one thread, so its results never depend on the other photos.
    """

    def __init__(self, backbone: Backbone):
        self._backbone, self._device = backbone, backbone.device
        #: whether a batch should start before the previous one has finished
        self.waits = self._device.type != "cpu"

    def batches(self, batch_size: int | None = None) -> Halving:
        """Batch size: as many images as fill a GPU, or as there are threads."""
        if batch_size is None:
            batch_size = max(1, min(8, torch.get_num_threads()))
            if self._device.type == "cuda":
                room = torch.cuda.mem_get_info(self._device)[0] // 8 // IMAGE_BYTES
                batch_size = int(max(1, min(IMAGES_AT_ONCE, room)))
            log.debug("%d images at a time", batch_size)
        return Halving(batch_size)

    def encode(
        self, photos: Sequence[Prepared], seed: int, at_once: Halving, fill: int
    ) -> Callable[[], list[Encodings]]:
        """Start encoding photos; calling the result waits for their features, and drops non-finite ones."""
        made = encode(self._backbone, photos, seed, at_once, fill)
        sums = [own.sum(dtype=torch.float32) for found in made for own in found.values()]
        finite = self.to_cpu(torch.stack(sums).isfinite()) if sums else None

        def finish() -> list[Encodings]:
            flags = iter(finite().tolist() if finite is not None else ())
            return [{spec: own for spec, own in found.items() if next(flags)} for found in made]

        return finish

    def batch(self, features: Sequence[Any]) -> Any:
        """Stack photos' features to float32 (B, N, D) on the device; cached ones may be on another device."""
        return torch.stack([torch.as_tensor(own).to(self._device) for own in features]).float()

    def rows(self, features: Sequence[Any]) -> list[NDArray[np.float16]]:
        """Features of several photos as rows on the CPU, with a single wait."""
        return list(torch.stack(list(features)).cpu().numpy())

    def to_cpu(self, values: Any) -> Callable[[], NDArray[Any]]:
        """Start copying a tensor to the CPU; calling the result waits for it."""
        copied = values.detach().to("cpu", non_blocking=values.is_cuda)
        there = self._event()

        def finish() -> NDArray[Any]:
            if there is not None:
                there.synchronize()
            return copied.numpy()  # type: ignore[no-any-return]

        return finish

    def stopwatch(self) -> Callable[[], Callable[[], float]]:
        """Start timing the device; calling the result stops, and returns a function for the milliseconds."""
        start, clock = self._event(), time.perf_counter()

        def stop() -> Callable[[], float]:
            end, seconds = self._event(), time.perf_counter() - clock

            def ms() -> float:
                if start is None or end is None:
                    return 1000 * seconds
                end.synchronize()
                return float(start.elapsed_time(end))

            return ms

        return stop

    def map(
        self, work: Callable[[Sequence[Any]], list[T]], items: Sequence[Any], at_once: Halving
    ) -> list[T]:
        """Apply ``work`` to batches: on a CPU single items in parallel, on a GPU as many as fit."""
        if self._device.type == "cpu":
            return list(side_by_side().map(lambda item: work([item])[0], items))
        return at_once(work, items)

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Enable gradients for methods, independent of the caller's mode."""
        with torch.inference_mode(False), gradients_after_fork():
            yield

    def _event(self) -> torch.cuda.Event | None:
        """An event at the current point of the GPU's stream."""
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event


def encode(
    backbone: Backbone,
    photos: Sequence[Prepared],
    seed: int = 0,
    at_once: Halving | None = None,
    fill: int = 1,
) -> list[Encodings]:
    """Encode the missing features of each photo; row 0 is the clean view, except for generated views.

    On a CPU each photo has its own passes, so its features are bit-identical whatever else is in the batch: matrix
    kernels may round differently for another batch size.

    Args:
        fill: on a GPU, pad to this many photos if they fit: its libraries spend seconds on every new batch size.
    """
    if backbone.device.type == "cpu":
        return _side_by_side(backbone, photos)
    found: list[Encodings] = [{} for _ in photos]
    groups: dict[tuple[AnySpec, ...], list[int]] = {}
    for i, photo in enumerate(photos):
        groups.setdefault(photo.missing, []).append(i)
    halving = at_once or Halving(max(1, len(photos)))
    for specs, group in groups.items():

        def some(part: Sequence[Prepared], specs: tuple[AnySpec, ...] = specs) -> list[Encodings]:
            filled = max(len(part), min(fill, halving.size))
            try:
                return _together(backbone, part, specs, seed, filled)
            except torch.OutOfMemoryError:
                if filled == len(part):
                    raise
                return _together(backbone, part, specs, seed, len(part))

        for i, own in zip(group, halving(some, [photos[i] for i in group]), strict=True):
            found[i] = own
    return found


def _together(
    backbone: Backbone, photos: Sequence[Prepared], specs: tuple[AnySpec, ...], seed: int, filled: int
) -> list[Encodings]:
    """Encode photos that miss the same specs, in large passes padded to ``filled`` photos."""

    def run(spec: AnySpec) -> Tensor:
        pixels = _pixels(backbone, photos, spec, seed)  # (B, N, 3, S, S); for local views, only their input
        if filled > len(photos):
            pixels = torch.cat([pixels, pixels[-1:].expand(filled - len(photos), -1, -1, -1, -1)])
        features = backbone.tower_of(spec)(pixels.flatten(0, 1))
        return features.view(filled, -1, features.shape[-1])[: len(photos)]

    found = {spec: run(spec) for spec in specs}  # (B, N, D)
    with_clean = [spec for spec in specs if isinstance(spec, LocalSpec) and spec.has_clean]
    if with_clean:
        crops = [found[spec] for spec in specs if isinstance(spec, ViewSpec) and not spec.generated]
        clean = (crops or [run(ViewSpec(count=1))])[0][:, :1]
        found |= {spec: torch.cat([clean, found[spec]], dim=1) for spec in with_clean}
    # keep results on the device: waiting for them here would delay the views of the next photos
    rounded = {spec: features.half() for spec, features in found.items()}
    return [{spec: features[i] for spec, features in rounded.items()} for i in range(len(photos))]


def _pixels(backbone: Backbone, photos: Sequence[Prepared], spec: AnySpec, seed: int) -> Tensor:
    """All views (B, N, 3, S, S) of a spec, rendered on the device, or earlier on the CPU."""
    decoded = [photo for photo in photos if photo.decoded is not None]
    renderer = backbone.renderer_of(spec)
    if decoded and not spec.generated and renderer is not None:
        shown = ViewSpec(count=1) if isinstance(spec, LocalSpec) else spec
        images = [torch.as_tensor(photo.decoded) for photo in decoded]
        return renderer.render(images, shown, seed, [photo.identity for photo in decoded])
    crops = isinstance(spec, ViewSpec) and not spec.generated
    rows = []
    for photo in photos:
        clean = [photo.clean] if photo.clean is not None and crops else []
        rows.append(np.concatenate([*clean, *([photo.pixels[spec]] if spec in photo.pixels else [])]))
    return torch.from_numpy(np.stack(rows))


def _side_by_side(backbone: Backbone, photos: Sequence[Prepared]) -> list[Encodings]:
    """All passes of all photos in parallel, each on one thread.

    Passes with few views may round differently from passes with many. The clean view therefore always has its own pass,
    as in methods that need no other view, and the last pass of crops is padded.
    """
    passes: list[tuple[AnySpec, Tensor]] = []
    for photo in photos:
        if photo.clean is not None:
            passes.append((ViewSpec(count=1), torch.from_numpy(photo.clean)))
        passes += [(spec, part) for spec, views in photo.pixels.items() for part in _divided(spec, views)]
    run = side_by_side().map(lambda one: backbone.tower_of(one[0]).one_pass(one[1]).half(), passes)
    found: list[Encodings] = []
    for photo in photos:
        clean = [] if photo.clean is None else [next(run)]
        own: Encodings = {}
        for spec, views in photo.pixels.items():
            parts = [next(run) for _ in _divided(spec, views)]
            rest = parts[0][0] if isinstance(spec, LocalSpec) else torch.cat(parts)[: len(views)]
            own[spec] = torch.cat([*clean, rest]) if spec.has_clean else rest
        own |= {spec: clean[0] for spec in photo.missing if spec not in own}
        found.append(own)
    return found


def _divided(spec: AnySpec, rendered: np.ndarray) -> tuple[Tensor, ...]:
    """Views in passes of CPU_CHUNK, the last padded with copies; the input of local views is one pass."""
    views = torch.from_numpy(rendered)
    if isinstance(spec, LocalSpec):
        return (views,)
    filled = torch.cat([views, views[-1:].expand(-len(views) % CPU_CHUNK, -1, -1, -1)])
    return torch.split(filled, CPU_CHUNK)
