"""From images to encoded views: the one passage through the image tower that every method shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from mltta.errors import ConfigError
from mltta.images.load import image_id
from mltta.images.views import Preprocess, ViewSpec, render_views

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: pixels (N, 3, S, S) of one image's views, by spec
Rendered = dict[ViewSpec, Tensor]


class Look(Protocol):
    """Renders chosen views of one image again, the same to the bit, as some model wants them."""

    def __call__(self, spec: ViewSpec, preprocess: Preprocess, views: Sequence[int]) -> Tensor:
        """Pixels (n, 3, S, S)."""


def look_at(read: Callable[[], Image], *, seed: int, name: str) -> Look:
    """How to render views of an image again, which is read when that is asked for."""

    def look(spec: ViewSpec, preprocess: Preprocess, views: Sequence[int]) -> Tensor:
        return render_views(read(), spec, preprocess, seed=seed, indices=views, name=name)

    return look


class Encoded:
    """Features of the views of B images; 16 views are the first 16 of 64.

    The few methods that look again, with a teacher or with a prompt inside the image tower, ask for ``pixels``.
    """

    def __init__(self, features: Mapping[ViewSpec, Tensor], looks: Sequence[Look] = ()):
        """Args:
        features: (B, N, D) for each spec.
        looks: for each image how to render its views again; none where no method needs to.
        """
        self._features = dict(features)
        self._looks = looks

    def features(self, spec: ViewSpec) -> Tensor:
        """Unit features (B, N, D) of the views that ``spec`` asks for."""
        for have, features in self._features.items():
            if have.covers(spec):
                return features[:, : spec.count]
        raise ConfigError(f"these views were not encoded: {spec}")

    def pixels(self, spec: ViewSpec, preprocess: Preprocess, views: Tensor) -> Tensor:
        """Pixels (B, n, 3, S, S) of the chosen views (B, n) of each image, rendered again."""
        if len(self._looks) != len(self):
            raise ConfigError("this method looks at the images again, and only their features are here")
        chosen = zip(self._looks, views.tolist(), strict=True)
        return torch.stack([look(spec, preprocess, own) for look, own in chosen])

    def __len__(self) -> int:
        return next(iter(self._features.values())).shape[0]

    def __getitem__(self, image: int) -> Encoded:
        """One image of the batch, as a batch of one."""
        one = slice(image, image + 1)
        return Encoded({spec: features[one] for spec, features in self._features.items()}, self._looks[one])


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
    name: str | None = None,
) -> Rendered:
    """Pixels of all views that some methods need; pure CPU work, fit for a worker."""
    return {
        spec: render_views(image, spec, preprocess, seed=seed, image_id=image_id, name=name)
        for spec in union(specs)
    }


@dataclass(frozen=True)
class Decoded:
    """An image as a GPU takes it, to make its views there."""

    pixels: Tensor  # (H, W, 3) uint8
    id: str  # what the randomness of its views hangs on


def decode(image: Image) -> Decoded:
    """Pixels and name of an image; pure CPU work, fit for a worker."""
    return Decoded(torch.from_numpy(np.array(image)), image_id(image))


def encode_decoded(
    backbone: Backbone,
    images: Sequence[Decoded],
    specs: Iterable[ViewSpec],
    *,
    seed: int = 0,
    looks: Sequence[Look] = (),
) -> Encoded:
    """Make the views of some images on the backbone's device, and encode them.

    The views are those of ``render``.
    """
    features = {}
    for spec in union(specs):
        pixels = backbone.device_views.render(
            [image.pixels for image in images], spec, seed, [image.id for image in images]
        )
        features[spec] = backbone.encode_images(pixels.flatten(0, 1)).view(len(images), spec.count, -1)
    return Encoded(features, looks)


def encode(backbone: Backbone, images: Sequence[Rendered], looks: Sequence[Look] = ()) -> Encoded:
    """Encode the rendered views of some images; ``looks`` render them again for the methods that ask.

    On the CPU the image tower sees one image's views per call, so that a feature never depends, to the
    last bit, on the images beside it: matrix kernels may round differently for another batch size.
    """
    if not images:
        raise ConfigError("no images to encode")
    features = {}
    for spec in images[0]:
        views = [image[spec] for image in images]
        if backbone.device.type == "cpu":
            features[spec] = torch.stack([backbone.encode_images(one) for one in views])
        else:
            features[spec] = backbone.encode_images(torch.cat(views)).view(len(images), spec.count, -1)
    return Encoded(features, looks)
