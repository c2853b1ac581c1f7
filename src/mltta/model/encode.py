"""One pass of prepared photos through the image tower, with features rounded to half precision here and nowhere else.

The feature cache holds half precision, so what is used is half precision too: a result never depends on the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.model.halving import Halving
from mltta.model.image_tower import CPU_CHUNK
from mltta.model.threads import side_by_side

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone
    from mltta.session.prepare import Prepared

#: half-precision features (N, D) by spec, on the device that made them
Encodings = dict[AnySpec, Tensor]


def encode(
    backbone: Backbone,
    photos: Sequence[Prepared],
    seed: int = 0,
    at_once: Halving | None = None,
    fill: int = 1,
) -> list[Encodings]:
    """The features that each photo is missing; row 0 is the clean view, except for generated views.

    On a CPU every photo has its own passes, so a feature never depends on the other photos of the batch, to the last
    bit: matrix kernels may round differently for another batch size.

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
    """Many photos that lack the same specs, in large passes padded to ``filled`` photos."""

    def run(spec: AnySpec) -> Tensor:
        pixels = _pixels(backbone, photos, spec, seed)  # (B, N, 3, S, S); for local views their input alone
        if filled > len(photos):
            pixels = torch.cat([pixels, pixels[-1:].expand(filled - len(photos), -1, -1, -1, -1)])
        features = backbone.tower_of(spec)(pixels.flatten(0, 1))
        return features.view(filled, -1, features.shape[-1])[: len(photos)]

    found = {spec: run(spec) for spec in specs}  # (B, N, D)
    with_clean = [spec for spec in specs if isinstance(spec, LocalSpec) and spec.has_clean]
    if with_clean:
        crops = next((found[s] for s in specs if isinstance(s, ViewSpec) and not s.generated), None)
        if crops is None:
            crops = run(ViewSpec(count=1))
        for spec in with_clean:
            found[spec] = torch.cat([crops[:, :1], found[spec]], dim=1)
    # left on the device: waiting for them here would hold up the views of the next photos
    rounded = {spec: features.half() for spec, features in found.items()}
    return [{spec: features[i] for spec, features in rounded.items()} for i in range(len(photos))]


def _pixels(backbone: Backbone, photos: Sequence[Prepared], spec: AnySpec, seed: int) -> Tensor:
    """All views (B, N, 3, S, S) of a spec, rendered on the device, or beforehand on the CPU."""
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
    """All passes of all photos at once, each run by one thread.

    A pass of few views may round differently from one of many: the clean view always has its own pass, as it has for
    methods that need no other, and the last pass of crops is padded.
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
