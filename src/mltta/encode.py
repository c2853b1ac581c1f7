"""From images to encoded views: the one passage through the image tower that every method shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from PIL.Image import Image
from torch import Tensor

from mltta.views import Preprocess, ViewSpec, render_views

if TYPE_CHECKING:
    from mltta.backbone import Backbone

#: pixels (N, 3, S, S) of one image's views, by spec
Rendered = dict[ViewSpec, Tensor]


class Encoded:
    """Features of the views of B images; 16 views are the first 16 of 64."""

    def __init__(self, features: Mapping[ViewSpec, Tensor]):
        self._features = dict(features)

    def features(self, spec: ViewSpec) -> Tensor:
        """Unit features (B, N, D) of the views that ``spec`` asks for."""
        for have, features in self._features.items():
            if have.covers(spec):
                return features[:, : spec.count]
        raise KeyError(f"these views were not encoded: {spec}")

    def __len__(self) -> int:
        return next(iter(self._features.values())).shape[0]


def union(specs: Iterable[ViewSpec]) -> list[ViewSpec]:
    """The fewest specs that cover all of them, so that several methods share one encoding."""
    kept: list[ViewSpec] = []
    for spec in sorted(set(specs), key=lambda s: -s.count):
        if not any(have.covers(spec) for have in kept):
            kept.append(spec)
    return kept


def render(
    image: Image,
    specs: Iterable[ViewSpec],
    preprocess: Preprocess,
    *,
    seed: int = 0,
    image_id: str | None = None,
) -> Rendered:
    """Pixels of all views that some methods need; pure CPU work, fit for a worker."""
    return {
        spec: render_views(image, spec, preprocess, seed=seed, image_id=image_id) for spec in union(specs)
    }


def encode(backbone: Backbone, images: Sequence[Rendered]) -> Encoded:
    """Encode the rendered views of some images.

    On the CPU the image tower sees one image's views per call, so that a feature never depends, to the
    last bit, on the images beside it: matrix kernels may round differently for another batch size.
    """
    features = {}
    for spec in images[0]:
        views = [image[spec] for image in images]
        if backbone.device.type == "cpu":
            features[spec] = torch.stack([backbone.encode_images(one) for one in views])
        else:
            features[spec] = backbone.encode_images(torch.cat(views)).view(len(images), spec.count, -1)
    return Encoded(features)
