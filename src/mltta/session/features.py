"""Photos in, the features of their views out, in order: read, decoded, made into views, encoded, kept."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from mltta.errors import ConfigError, ImageError
from mltta.images.decode import load_image
from mltta.images.specs import AnySpec
from mltta.model.backbone import Backbone
from mltta.model.encoded import Encoded, look_at, union
from mltta.session.ahead import in_order
from mltta.session.cache import FeatureCache
from mltta.session.encode import Encodings, encode
from mltta.session.execution import Execution, Halving
from mltta.session.overlap import Later
from mltta.session.prepare import Photo, Prepare, Prepared


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

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.encoded + other.encoded,
            self.cached + other.cached,
            self.failed + other.failed,
            self.encode_seconds + other.encode_seconds,
        )


@dataclass(frozen=True)
class _Launched:
    """A batch that is being encoded."""

    batch: Sequence[Prepared]
    #: by the id of a prepared photo
    encodings: dict[int, Encodings]
    #: whether each of the encodings, in their order, holds numbers only
    finite: Later | None


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

    @cached_property
    def _at_once(self) -> Halving:
        return Halving(self.execution.images_at_once(self.backbone))

    def __getstate__(self) -> dict[str, Any]:
        """Where it is sent, it chooses again how many photos fit at once."""
        return {name: value for name, value in self.__dict__.items() if name != "_at_once"}

    def __call__(self, keys: Iterable[Any]) -> Iterator[list[Features]]:
        """Batches of photos, in their order; the next are prepared while one is worked on.

        A GPU is given a batch before the one before it is waited for.
        """
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
        workers = self.execution.workers or 0
        threads = 0 if workers else self.execution.decoders(self.backbone)
        ahead = size + (2 * workers or threads)
        prepared = in_order(prepare, keys, workers=workers, threads=threads, ahead=ahead)
        under_way: deque[_Launched] = deque()
        fill = 1
        while True:
            start = time.perf_counter()
            batch = list(islice(prepared, size))
            if not batch:
                break
            # the end of a long stream is filled up to the size of all before it, a short stream to a power of two
            fill = size if len(batch) == size or fill == size else 1 << (len(batch) - 1).bit_length()
            under_way.append(self._launch(batch, fill))
            self.counts.encode_seconds += time.perf_counter() - start if under_way[-1].encodings else 0.0
            if len(under_way) > (self.backbone.device.type != "cpu"):
                yield self._land(under_way.popleft())
        while under_way:
            yield self._land(under_way.popleft())

    def _launch(self, batch: Sequence[Prepared], fill: int) -> _Launched:
        """Begin to encode a batch; a GPU is not waited for."""
        fresh = [photo for photo in batch if photo.missing]
        encodings = encode(self.backbone, fresh, self.seed, self._at_once, fill)
        sums = [own.sum(dtype=torch.float32) for found in encodings for own in found.values()]
        finite = Later(torch.stack(sums).isfinite()) if sums else None
        return _Launched(batch, {id(p): own for p, own in zip(fresh, encodings, strict=True)}, finite)

    def _land(self, launched: _Launched) -> list[Features]:
        """The features of a batch, once they are there, and in the caches."""
        start = time.perf_counter()
        flags = iter(launched.finite.get().tolist() if launched.finite is not None else ())
        # a feature that is no number is none
        made = {
            photo: {spec: own for spec, own in found.items() if next(flags)}
            for photo, found in launched.encodings.items()
        }
        for cache in self._caches:
            added = [photo for photo in launched.batch if cache.spec in made.get(id(photo), {})]
            if added:
                rows = torch.stack([made[id(photo)][cache.spec] for photo in added]).cpu()  # waited for once
                cache.write([photo.names[cache.spec] for photo in added], list(rows))
        found = [self._one(photo, made.get(id(photo), {})) for photo in launched.batch]
        self.counts.failed += sum(bool(item.errors) for item in found)
        self.counts.encoded += len(made)
        self.counts.cached += sum(not photo.missing and not photo.errors for photo in launched.batch)
        self.counts.encode_seconds += time.perf_counter() - start if made else 0.0
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
            return lambda: load_image(photo.source, working=True, name=photo.id)

        looks = [look_at(read(x.photo), seed=self.seed, name=x.photo.name) for x in photos]
        return Encoded(features, looks)


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
