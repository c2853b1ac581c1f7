"""Photos in, the features of their views out, in order: read, decoded, made into views, encoded, kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from mltta.errors import ConfigError, ImageError
from mltta.images.load import load_image
from mltta.images.views import AnySpec
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded, look_at, union
from mltta.pipeline.ahead import in_order
from mltta.pipeline.cache import FeatureCache
from mltta.pipeline.encode import Encodings, encode
from mltta.pipeline.execution import Execution, Halving
from mltta.pipeline.prepare import Photo, Prepare, Prepared


@dataclass(frozen=True)
class Features:
    """One photo: half-precision features (N, D) by spec, and why some are missing."""

    photo: Photo
    features: Encodings = field(default_factory=dict)
    #: why some views could not be made, or all of them
    errors: dict[AnySpec, str] = field(default_factory=dict)
    #: what captions say of it, by spec, once somebody has asked them
    votes: dict[AnySpec, Tensor] = field(default_factory=dict)


@dataclass
class Counts:
    """Where features came from, and the seconds that took."""

    encoded: int = 0
    cached: int = 0
    failed: int = 0
    encode_seconds: float = 0.0


class Pipeline:
    """The way of photos through one backbone, for all methods that look at the same views."""

    def __init__(
        self,
        backbone: Backbone,
        specs: Iterable[AnySpec],
        *,
        seed: int = 0,
        execution: Execution | None = None,
        cache: Callable[[AnySpec], FeatureCache] | None = None,
        fetch: Callable[[Any], Photo] | None = None,
    ):
        """Args:
        specs: the views that the methods need.
        cache: makes the cache of a spec; None keeps nothing.
        fetch: the photo of a key; by default keys are photos.
        """
        self.backbone, self.specs, self.seed = backbone, union(specs), seed
        self.execution = execution or Execution()
        self.counts = Counts()
        self._caches = [] if cache is None else [cache(spec) for spec in self.specs]
        self._fetch = fetch or _itself
        self._at_once = Halving(self.execution.images_at_once(backbone))

    def __call__(self, keys: Iterable[Any]) -> Iterator[list[Features]]:
        """Batches of photos, in their order; the next are prepared while one is worked on."""
        # generated views are images of their own, which no device makes
        on_device = self.backbone.renderer is not None and not all(spec.generated for spec in self.specs)
        prepare = Prepare(
            self._fetch,
            self.specs,
            self.backbone.preprocess,
            caches=self._caches,
            seed=self.seed,
            on_device=on_device,
        )
        size = self._at_once.size
        workers = self.execution.processes(self.backbone)
        prepared = in_order(prepare, keys, workers=workers, ahead=size + 2 * workers)
        while True:
            start = time.perf_counter()
            batch = list(islice(prepared, size))
            if not batch:
                return
            yield self._features(batch, start)

    def _features(self, batch: Sequence[Prepared], start: float) -> list[Features]:
        fresh = [photo for photo in batch if photo.missing]
        encodings = encode(self.backbone, fresh, self.seed, self._at_once)
        made = {id(photo): _only_finite(own) for photo, own in zip(fresh, encodings, strict=True)}
        for cache in self._caches:
            added = [photo for photo in fresh if cache.spec in made[id(photo)]]
            if added:
                names = [photo.names[cache.spec] for photo in added]
                cache.write(names, [made[id(photo)][cache.spec].cpu() for photo in added])
        found = [self._one(photo, made.get(id(photo), {})) for photo in batch]
        self.counts.failed += sum(bool(item.errors) for item in found)
        self.counts.encoded += len(fresh)
        self.counts.cached += sum(not photo.missing and not photo.errors for photo in batch)
        self.counts.encode_seconds += time.perf_counter() - start if fresh else 0.0
        return found

    def _one(self, photo: Prepared, made: Encodings) -> Features:
        features = dict(made)
        said = f"{photo.photo.id}: its features are not finite numbers, so it has no scores"
        errors = photo.errors | {spec: said for spec in photo.missing if spec not in made}
        for cache in self._caches:
            if cache.spec not in made and cache.spec not in errors:
                features[cache.spec] = cache.read(photo.names[cache.spec])
        return Features(photo.photo, features, errors)

    def encoded(self, photos: Sequence[Features]) -> Encoded:
        """Float32 features of some photos as methods take them, and a way to look at the photos again."""
        specs = [spec for spec in photos[0].features if all(spec in item.features for item in photos)]
        device = self.backbone.device
        features = {
            # fresh ones may be there already, kept ones are not
            spec: torch.stack([item.features[spec].to(device) for item in photos]).float()
            for spec in specs
        }

        def read(photo: Photo) -> Callable[[], Any]:
            return lambda: load_image(photo.source, working=True)

        looks = [look_at(read(x.photo), seed=self.seed, name=x.photo.name) for x in photos]
        return Encoded(features, looks)


def _only_finite(encodings: Encodings) -> Encodings:
    """Without those that hold a number that is none."""
    return {spec: own for spec, own in encodings.items() if math.isfinite(own.sum(dtype=torch.float32))}


def _itself(key: Any) -> Photo:
    if not isinstance(key, Photo):
        raise ConfigError(f"a {type(key).__name__} is no photo")
    return key


def encode_images(
    backbone: Backbone, images: Sequence[Any], specs: Iterable[AnySpec], *, seed: int = 0
) -> Encoded:
    """Encode the views of some images, for a method: ``method(encode_images(backbone, ["a.jpg"], method.needs))``.

    Args:
        images: whatever `load_image` takes; one that cannot be read raises ImageError.
        specs: the views, as a method's ``needs`` has them.
    """
    if not images:
        raise ConfigError("no images to encode")
    pipeline = Pipeline(backbone, specs, seed=seed)
    photos = (Photo(i, str(i), image, str(i)) for i, image in enumerate(images))
    found = [item for batch in pipeline(photos) for item in batch]
    for item in found:
        if item.errors:
            raise ImageError(next(iter(item.errors.values())))
    return pipeline.encoded(found)
