"""From a dataset to the features of its views, image by image: read from the cache, or rendered and encoded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from mltta.backbone import Backbone
from mltta.data import Dataset
from mltta.encode import Encoded, Rendered, encode, render
from mltta.errors import ImageError
from mltta.evaluation.cache import NAME_BYTES, FeatureCache
from mltta.images import image_id, load_image
from mltta.views import Preprocess, ViewSpec, render_views

# Views that pass through the image tower together on a GPU.
GPU_VIEWS = 512


@dataclass(frozen=True)
class Item:
    """One image: half-precision features (N, D) by spec, or why there are none."""

    index: int
    features: dict[ViewSpec, Tensor] = field(default_factory=dict)
    error: str | None = None


@dataclass
class Counts:
    """Where features came from, and the seconds that took."""

    encoded: int = 0
    cached: int = 0
    failed: int = 0
    encode_seconds: float = 0.0
    read_seconds: float = 0.0


@dataclass(frozen=True)
class _Loaded:
    """What a worker found: the image's name, the views that the cache lacks, or an error."""

    index: int
    name: bytes = b""
    rendered: Rendered = field(default_factory=dict)
    error: str | None = None


class _Order(Sampler[int]):
    """Indices in a stated order, as plain numbers, one at a time: a million of them cost no list."""

    def __init__(self, indices: NDArray[np.int64]):
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        return map(int, self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class _Images(TorchDataset[_Loaded]):
    """Decodes images and renders the views that no cache holds; runs in worker processes."""

    def __init__(
        self, images: Sequence[Any], preprocess: Preprocess, caches: Sequence[FeatureCache], seed: int
    ):
        self.images, self.preprocess, self.caches, self.seed = images, preprocess, caches, seed

    def __getitem__(self, index: int) -> _Loaded:
        try:
            source = self.images[index]
            name, source = _name(source)
            missing = [cache.spec for cache in self.caches if cache.find(name) is None]
            if not missing:
                return _Loaded(index, name)
            image = load_image(source)
            return _Loaded(index, name, render(image, missing, self.preprocess, seed=self.seed))
        except ImageError as error:
            return _Loaded(index, error=str(error))


def feature_stream(
    dataset: Dataset,
    indices: NDArray[np.int64],
    backbone: Backbone,
    caches: Sequence[FeatureCache],
    *,
    keep: bool = True,
    seed: int = 0,
    batch_size: int = 8,
    workers: int = 0,
    counts: Counts | None = None,
) -> Iterator[list[Item]]:
    """Batches of items for the images at ``indices``, in that order.

    Features are rounded to half precision whether they come from the cache or not, so that a result never depends
    on which images were encoded before.

    Args:
        caches: one for each kind of views.
        keep: add what is encoded to the caches.
        workers: processes that decode and render; 0 does it here.
    """
    counts = counts if counts is not None else Counts()
    images = _Images(dataset.images, backbone.preprocess, caches, seed)
    loader = DataLoader(
        images,
        batch_size=batch_size,
        sampler=_Order(indices),
        num_workers=workers,
        collate_fn=list,
        prefetch_factor=2 if workers else None,
    )
    batches = iter(loader)
    while True:
        start = time.perf_counter()
        batch: list[_Loaded] | None = next(batches, None)
        if batch is None:
            return
        fresh = [loaded for loaded in batch if loaded.rendered]
        features = _encode(backbone, fresh)
        if keep:
            for cache in caches:
                added = [loaded for loaded in fresh if cache.spec in loaded.rendered]
                if added:
                    cache.write([x.name for x in added], [features[x.index][cache.spec] for x in added])
        items = [_item(loaded, features.get(loaded.index, {}), caches) for loaded in batch]
        seconds = time.perf_counter() - start
        counts.failed += sum(item.error is not None for item in items)
        counts.encoded += len(fresh)
        counts.cached += sum(item.error is None for item in items) - len(fresh)
        counts.encode_seconds += seconds if fresh else 0.0
        counts.read_seconds += 0.0 if fresh else seconds
        yield items


def to_encoded(items: Sequence[Item], dataset: Dataset, backbone: Backbone, seed: int) -> Encoded:
    """Float32 features of some images as methods take them, and a way to look at the images again."""
    specs = items[0].features
    features = {
        spec: torch.stack([item.features[spec] for item in items]).to(backbone.device, torch.float32)
        for spec in specs
    }
    return Encoded(features, [partial(_look, dataset.images, item.index, seed) for item in items])


def _look(
    images: Sequence[Any], index: int, seed: int, spec: ViewSpec, preprocess: Preprocess, views: Sequence[int]
) -> Tensor:
    return render_views(load_image(images[index]), spec, preprocess, seed=seed, indices=views)


def _name(source: Any) -> tuple[bytes, Any]:
    """Name an image by its content: a file's bytes, else its pixels; and give what to decode."""
    if isinstance(source, (str, Path)):
        try:
            data = Path(source).read_bytes()
        except OSError:
            load_image(source)  # raises with a reason that people understand
            raise
        return hashlib.blake2b(data, digest_size=NAME_BYTES).digest(), source
    if isinstance(source, bytes):
        return hashlib.blake2b(source, digest_size=NAME_BYTES).digest(), source
    image = load_image(source)
    return bytes.fromhex(image_id(image)), image


def _encode(backbone: Backbone, fresh: Sequence[_Loaded]) -> dict[int, dict[ViewSpec, Tensor]]:
    """Half-precision features of rendered images, on the CPU."""
    found: dict[int, dict[ViewSpec, Tensor]] = {}
    groups: dict[tuple[ViewSpec, ...], list[_Loaded]] = {}
    for loaded in fresh:
        groups.setdefault(tuple(loaded.rendered), []).append(loaded)
    for specs, group in groups.items():
        at_once = max(1, GPU_VIEWS // sum(spec.count for spec in specs))
        for start in range(0, len(group), at_once):
            part = group[start : start + at_once]
            encoded = encode(backbone, [loaded.rendered for loaded in part])
            for spec in specs:
                halves = encoded.features(spec).half().cpu()
                for loaded, features in zip(part, halves, strict=True):
                    found.setdefault(loaded.index, {})[spec] = features
    return found


def _item(loaded: _Loaded, encoded: dict[ViewSpec, Tensor], caches: Sequence[FeatureCache]) -> Item:
    if loaded.error is not None:
        return Item(loaded.index, error=loaded.error)
    features = {}
    for cache in caches:
        if cache.spec in encoded:
            features[cache.spec] = encoded[cache.spec]
        else:
            place = cache.find(loaded.name)
            assert place is not None  # the worker left it out because it is there
            features[cache.spec] = cache.read(place)
    return Item(loaded.index, features)
