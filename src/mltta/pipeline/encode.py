"""From prepared photos to features: one passage through the image tower, rounded to half precision, once and here.

What is kept on disk is half precision, so what is used is too: a result never depends on what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mltta.images.views import ViewSpec
from mltta.model.backbone import Backbone
from mltta.pipeline.execution import Halving
from mltta.pipeline.prepare import Decoded, Prepared

#: half-precision features (N, D), on the CPU, by spec
Encodings = dict[ViewSpec, Tensor]


def encode(
    backbone: Backbone, photos: Sequence[Prepared], seed: int = 0, at_once: Halving | None = None
) -> list[Encodings]:
    """The features of what each photo lacks.

    On the CPU every photo has passes of its own, so that a feature never depends, to the last bit, on the photos beside
    it: matrix kernels may round differently for another batch size.
    """
    if backbone.device.type == "cpu":
        return _on_cpu(backbone, photos)
    found: list[Encodings] = [{} for _ in photos]
    groups: dict[tuple[ViewSpec, ...], list[int]] = {}
    for i, photo in enumerate(photos):
        groups.setdefault(photo.missing, []).append(i)
    for specs, group in groups.items():
        for spec in specs:

            def some(part: Sequence[Prepared], spec: ViewSpec = spec) -> list[Tensor]:
                pixels = _pixels(backbone, part, spec, seed)  # (B, N, 3, S, S)
                features = backbone.encode_images(pixels.flatten(0, 1)).view(len(part), spec.count, -1)
                return list(features.half().cpu())

            several = [photos[i] for i in group]
            for i, features in zip(group, (at_once or Halving(len(several)))(some, several), strict=True):
                found[i][spec] = features
    return found


def _pixels(backbone: Backbone, photos: Sequence[Prepared], spec: ViewSpec, seed: int) -> Tensor:
    """All views (B, N, 3, S, S) of a spec, made on the device, or rendered before."""
    decoded: list[Decoded] = [photo.decoded for photo in photos if photo.decoded is not None]
    if decoded and not spec.generated and backbone.renderer is not None:
        return backbone.renderer.render([x.pixels for x in decoded], spec, seed, [x.id for x in decoded])
    return torch.stack([torch.cat(_parts(photo, spec)) for photo in photos])


def _parts(photo: Prepared, spec: ViewSpec) -> list[Tensor]:
    clean = [photo.clean] if photo.clean is not None and not spec.generated else []
    return clean + ([photo.pixels[spec]] if spec in photo.pixels else [])


def _on_cpu(backbone: Backbone, photos: Sequence[Prepared]) -> list[Encodings]:
    """All passes of all photos side by side.

    A pass of few views may round another way than one of many: the clean view always has a pass to itself, as it has
    for the methods that need no other, and the last pass of the others is filled up.
    """
    tower = backbone.image_tower
    passes: list[Tensor] = []
    for photo in photos:
        passes += [] if photo.clean is None else [photo.clean]
        for spec in photo.missing:
            if spec in photo.pixels:
                views = photo.pixels[spec]
                filled = torch.cat([views, views[-1:].expand(-len(views) % tower.chunk, -1, -1, -1)])
                passes += torch.split(filled, tower.chunk)
    if not passes:
        return [{} for _ in photos]
    features = iter(torch.split(tower.passes(passes).half(), [len(views) for views in passes]))
    found: list[Encodings] = []
    for photo in photos:
        clean = [] if photo.clean is None else [next(features)]
        own: Encodings = {}
        for spec in photo.missing:
            rest: list[Tensor] = []
            if spec in photo.pixels:
                count = len(photo.pixels[spec])
                rest = [torch.cat([next(features) for _ in range(-(-count // tower.chunk))])[:count]]
            own[spec] = torch.cat((clean if not spec.generated else []) + rest)
        found.append(own)
    return found
