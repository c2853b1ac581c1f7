"""From prepared photos to features: one passage through the image tower, rounded to half precision, once and here.

What is kept on disk is half precision, so what is used is too: a result never depends on what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.model.backbone import Backbone
from mltta.model.image_tower import CPU_CHUNK
from mltta.model.threads import side_by_side
from mltta.session.execution import Halving
from mltta.session.prepare import Decoded, Prepared

#: half-precision features (N, D) by spec, where they were made
Encodings = dict[AnySpec, Tensor]


def encode(
    backbone: Backbone,
    photos: Sequence[Prepared],
    seed: int = 0,
    at_once: Halving | None = None,
    fill: int = 1,
) -> list[Encodings]:
    """The features of what each photo lacks; row 0 is the clean view, but for generated views.

    On the CPU every photo has passes of its own, so that a feature never depends, to the last bit, on the photos beside
    it: matrix kernels may round differently for another batch size.

    Args:
        fill: on a GPU, fill up to so many photos, as far as fit at once: its libraries spend seconds on every new size.
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
    """Many photos that lack the same specs, in large passes, as if they were so many."""

    def run(spec: AnySpec) -> Tensor:
        pixels = _pixels(backbone, photos, spec, seed)  # (B, N, 3, S, S), of local views their input alone
        if filled > len(photos):
            pixels = torch.cat([pixels, pixels[-1:].expand(filled - len(photos), -1, -1, -1, -1)])
        features = backbone.tower_of(spec)(pixels.flatten(0, 1))
        return features.view(filled, -1, features.shape[-1])[: len(photos)]

    found = {spec: run(spec) for spec in specs}  # (B, N, D)
    with_clean = [spec for spec in specs if isinstance(spec, LocalSpec) and spec.has_clean]
    if with_clean:
        crops = next(
            (found[spec] for spec in specs if isinstance(spec, ViewSpec) and not spec.generated), None
        )
        if crops is None:
            crops = run(ViewSpec(count=1))
        for spec in with_clean:
            found[spec] = torch.cat([crops[:, :1], found[spec]], dim=1)
    # left on the device: waiting for them here would hold up the views of the next photos
    rounded = {spec: features.half() for spec, features in found.items()}
    return [{spec: features[i] for spec, features in rounded.items()} for i in range(len(photos))]


def _pixels(backbone: Backbone, photos: Sequence[Prepared], spec: AnySpec, seed: int) -> Tensor:
    """All views (B, N, 3, S, S) of a spec, made on the device, or rendered before."""
    decoded: list[Decoded] = [photo.decoded for photo in photos if photo.decoded is not None]
    renderer = backbone.renderer_of(spec)
    if decoded and not spec.generated and renderer is not None:
        shown = ViewSpec(count=1) if isinstance(spec, LocalSpec) else spec
        return renderer.render([x.pixels for x in decoded], shown, seed, [x.id for x in decoded])
    return torch.stack([torch.cat(_parts(photo, spec)) for photo in photos])


def _parts(photo: Prepared, spec: AnySpec) -> list[Tensor]:
    crops = isinstance(spec, ViewSpec) and not spec.generated
    clean = [photo.clean] if photo.clean is not None and crops else []
    return clean + ([photo.pixels[spec]] if spec in photo.pixels else [])


def _side_by_side(backbone: Backbone, photos: Sequence[Prepared]) -> list[Encodings]:
    """All passes of all photos at once, each by one thread.

    A pass of few views may round another way than one of many: the clean view always has a pass to itself, as it has
    for the methods that need no other, and the last pass of crops is filled up.
    """
    passes: list[tuple[AnySpec, Tensor]] = []
    for photo in photos:
        passes += [] if photo.clean is None else [(ViewSpec(count=1), photo.clean)]
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


def _divided(spec: AnySpec, views: Tensor) -> tuple[Tensor, ...]:
    """Views in passes of CPU_CHUNK, the last filled up with copies; the input of local views is a pass."""
    if isinstance(spec, LocalSpec):
        return (views,)
    filled = torch.cat([views, views[-1:].expand(-len(views) % CPU_CHUNK, -1, -1, -1)])
    return torch.split(filled, CPU_CHUNK)
