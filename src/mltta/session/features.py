"""The feature pipeline: photos are read, decoded, rendered, encoded and cached, in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from mltta.errors import ConfigError, ImageError
from mltta.images.decode import load_image
from mltta.images.specs import AnySpec
from mltta.model.encoded import Encoded, look_at, union
from mltta.session.cache import FeatureCache
from mltta.session.execution import Execution, in_order
from mltta.session.prepare import Photo, Prepare, Prepared

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone
    from mltta.model.torch_engine import Halving


@dataclass(frozen=True)
class Features:
    """One photo's half-precision features (N, D) by spec, on any device, and errors for those that are missing."""

    photo: Photo
    features: dict[AnySpec, Any] = field(default_factory=dict)
    errors: dict[AnySpec, str] = field(default_factory=dict)
    #: caption votes by spec, computed once for all methods with the same views
    votes: dict[AnySpec, Any] = field(default_factory=dict)


@dataclass
class Counts:
    """How many features were encoded or cached, and the seconds spent."""

    encoded: int = 0
    cached: int = 0
    failed: int = 0
    encode_seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


class FeatureStream:
    """Features of photos from one backbone, shared by all methods that use the same views."""

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
        cache: creates the cache for a spec; None disables caching.
        fetch: returns the photo for a key; by default keys are photos.
        """
        self.backbone, self.specs, self.seed = backbone, union(specs), seed
        self.execution = execution or Execution()
        self.counts = Counts()
        self.caches = [] if cache is None else [cache(spec) for spec in self.specs]
        self._fetch = fetch or _itself

    @cached_property
    def at_once(self) -> Halving:
        """How many photos are processed per batch."""
        found: Halving = self.backbone.engine.batches(self.execution.batch_size)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Drop the batch size: another machine chooses its own."""
        return {name: value for name, value in self.__dict__.items() if name != "at_once"}

    def __call__(self, keys: Iterable[Any]) -> Iterator[list[Features]]:
        """Batches of photos, in order. The next batch is prepared while one is encoded, so that a GPU never waits."""
        # generated views are separate images, which are never rendered on the device
        on_device = self.backbone.renderer is not None and not all(spec.generated for spec in self.specs)
        prepare = Prepare(
            self._fetch,
            self.specs,
            self.backbone.preprocess,
            caches=self.caches,
            seed=self.seed,
            on_device=on_device,
        )
        size = self.at_once.size
        workers = self.execution.workers or 0
        threads = 0 if workers else self.execution.decoders(self.backbone)
        ahead = size + (2 * workers or threads)
        prepared = in_order(prepare, keys, workers=workers, threads=threads, ahead=ahead)

        under_way: deque[Callable[[], list[Features]]] = deque()
        fill = 1
        while True:
            start = time.perf_counter()
            if not (batch := list(islice(prepared, size))):
                break
            # pad the end of a long stream to the usual batch size, and a short stream to a power of two
            fill = size if len(batch) == size or fill == size else 1 << (len(batch) - 1).bit_length()
            under_way.append(self._launch(batch, fill))
            if any(photo.missing for photo in batch):
                self.counts.encode_seconds += time.perf_counter() - start
            if len(under_way) > self.backbone.engine.waits:
                yield under_way.popleft()()
        while under_way:
            yield under_way.popleft()()

    def _launch(self, batch: Sequence[Prepared], fill: int) -> Callable[[], list[Features]]:
        """Start encoding a batch; calling the result waits for it and fills the caches."""
        fresh = [photo for photo in batch if photo.missing]
        finish = self.backbone.engine.encode(fresh, self.seed, self.at_once, fill)

        def features() -> list[Features]:
            start = time.perf_counter()
            made = {id(photo): found for photo, found in zip(fresh, finish(), strict=True)}
            for cache in self.caches:
                added = [photo for photo in batch if cache.spec in made.get(id(photo), {})]
                if added:
                    rows = self.backbone.engine.rows([made[id(photo)][cache.spec] for photo in added])
                    kept = cache.write([photo.names[cache.spec] for photo in added], rows)
                    if cache.packed:
                        for photo, row in zip(added, kept, strict=True):
                            made[id(photo)][cache.spec] = row
            found = [self._one(photo, made.get(id(photo), {})) for photo in batch]
            self.counts.failed += sum(bool(item.errors) for item in found)
            self.counts.encoded += len(fresh)
            self.counts.cached += sum(not photo.missing and not photo.errors for photo in batch)
            self.counts.encode_seconds += time.perf_counter() - start if fresh else 0.0
            return found

        return features

    def _one(self, photo: Prepared, made: dict[AnySpec, Any]) -> Features:
        said = f"{photo.photo.id}: its features are not finite, so it has no scores"
        errors = photo.errors | {spec: said for spec in photo.missing if spec not in made}
        cached = {
            cache.spec: cache.read(photo.names[cache.spec])
            for cache in self.caches
            if cache.spec not in made and cache.spec not in errors
        }
        return Features(photo.photo, made | cached, errors)

    def encoded(self, photos: Sequence[Features]) -> Encoded:
        """Float32 features of photos as methods take them, and functions to render their views again."""
        specs = [spec for spec in photos[0].features if all(spec in item.features for item in photos)]
        features = {
            spec: self.backbone.engine.batch([item.features[spec] for item in photos]) for spec in specs
        }
        looks = []
        for photo in (item.photo for item in photos):
            read = partial(load_image, photo.source, working=True, name=photo.id)
            looks.append(look_at(read, seed=self.seed, name=photo.name))
        return Encoded(features, looks)


def _itself(key: Any) -> Photo:
    if not isinstance(key, Photo):
        raise ConfigError(f"expected a photo, got {type(key).__name__}")
    return key


def encode_images(
    backbone: Backbone, images: Sequence[Any], specs: Iterable[AnySpec], *, seed: int = 0
) -> Encoded:
    """Encode the views of some images, for a method: ``method(encode_images(backbone, ["a.jpg"], method.needs))``.

    Args:
        images: anything `load_image` takes; one that cannot be read raises ImageError.
        specs: the views, such as a method's ``needs``.
    """
    if not images:
        raise ConfigError("no images to encode")
    stream = FeatureStream(backbone, specs, seed=seed)
    photos = (Photo(i, str(i), image, str(i)) for i, image in enumerate(images))
    found = [item for batch in stream(photos) for item in batch]
    for item in found:
        if item.errors:
            raise ImageError(next(iter(item.errors.values())))
    return stream.encoded(found)
