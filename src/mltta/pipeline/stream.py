"""From a dataset to the features of its views, image by image: read from the cache, or rendered and encoded."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from mltta.data import Dataset
from mltta.errors import ImageError
from mltta.images.load import image_id, load_image
from mltta.images.views import Preprocess, ViewSpec, generated_files
from mltta.model.backbone import Backbone
from mltta.model.image_tower import CPU_CHUNK
from mltta.pipeline.cache import NAME_BYTES, FeatureCache
from mltta.pipeline.encode import Decoded, Encoded, Rendered, decode, encode, encode_decoded, look_at, render

log = logging.getLogger("mltta")


@dataclass(frozen=True)
class Item:
    """One image: half-precision features (N, D) by spec, and why some are missing."""

    index: int
    features: dict[ViewSpec, Tensor] = field(default_factory=dict)
    #: why some views could not be made, or all of them
    errors: dict[ViewSpec, str] = field(default_factory=dict)


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
    """What a worker found: the names its views are cached by, the views that the cache lacks, or an error."""

    index: int
    names: dict[ViewSpec, bytes] = field(default_factory=dict)
    rendered: Rendered = field(default_factory=dict)
    decoded: Decoded | None = None
    #: the specs that no cache holds, and why some could not be made
    missing: tuple[ViewSpec, ...] = ()
    errors: dict[ViewSpec, str] = field(default_factory=dict)


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
        self,
        dataset: Dataset,
        preprocess: Preprocess,
        caches: Sequence[FeatureCache],
        seed: int,
        on_device: bool = False,
    ):
        """Args:
        on_device: leave the making of crops to the device, and only decode.
        """
        self.images, self.ids = dataset.images, dataset.ids
        self.preprocess, self.caches, self.seed, self.on_device = preprocess, caches, seed, on_device

    def __getitem__(self, index: int) -> _Loaded:
        specs = [cache.spec for cache in self.caches]
        try:
            id = self.ids[index]
            content, source = _name(self.images[index])
        except ImageError as error:
            return _Loaded(index, errors=dict.fromkeys(specs, str(error)))
        names: dict[ViewSpec, bytes] = {}
        errors: dict[ViewSpec, str] = {}
        for spec in specs:  # generated views may be missing where the image is not
            try:
                names[spec] = _views_name(content, spec, id)
            except ImageError as error:
                errors[spec] = str(error)
        missing = [c.spec for c in self.caches if c.spec in names and c.find(names[c.spec]) is None]
        rendered: Rendered = {}
        decoded = None
        for spec in missing:
            try:
                image = load_image(source)
                if self.on_device and not spec.generated:
                    decoded = decoded or decode(image)
                else:
                    rendered |= render(image, [spec], self.preprocess, seed=self.seed, name=id)
            except ImageError as error:
                errors[spec] = str(error)
        made = tuple(spec for spec in missing if spec not in errors)
        return _Loaded(index, names, rendered, decoded, made, errors)


def feature_stream(
    dataset: Dataset,
    indices: NDArray[np.int64],
    backbone: Backbone,
    caches: Sequence[FeatureCache],
    *,
    seed: int = 0,
    batch_size: int = 8,
    workers: int = 0,
    counts: Counts | None = None,
) -> Iterator[list[Item]]:
    """Batches of items for the images at ``indices``, in that order.

    Features are rounded to half precision whether they come from the cache or not, so that a result never depends
    on which images were encoded before.

    Args:
        caches: one for each kind of views; what is encoded is added to them.
        workers: processes that decode and render; 0 does it here.
    """
    counts = counts if counts is not None else Counts()
    on_device = backbone.device.type != "cpu"
    images = _Images(dataset, backbone.preprocess, caches, seed, on_device)
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
        fresh = [loaded for loaded in batch if loaded.missing]
        features = _encode_on_device(backbone, fresh, seed) if on_device else _encode(backbone, fresh)
        for cache in caches:
            added = [loaded for loaded in fresh if cache.spec in loaded.missing]
            if added:
                names = [x.names[cache.spec] for x in added]
                cache.write(names, [features[x.index][cache.spec] for x in added])
        items = [_item(loaded, features.get(loaded.index, {}), caches) for loaded in batch]
        seconds = time.perf_counter() - start
        counts.failed += sum(bool(item.errors) for item in items)
        counts.encoded += len(fresh)
        counts.cached += sum(not loaded.missing and not loaded.errors for loaded in batch)
        counts.encode_seconds += seconds if fresh else 0.0
        counts.read_seconds += 0.0 if fresh else seconds
        yield items


def to_encoded(items: Sequence[Item], dataset: Dataset, backbone: Backbone, seed: int) -> Encoded:
    """Float32 features of some images as methods take them, and a way to look at the images again."""
    specs = [spec for spec in items[0].features if all(spec in item.features for item in items)]
    features = {
        spec: torch.stack([item.features[spec] for item in items]).to(backbone.device, torch.float32)
        for spec in specs
    }
    looks = [
        look_at(partial(_read, dataset, item.index), seed=seed, name=dataset.ids[item.index])
        for item in items
    ]
    return Encoded(features, looks)


def _read(dataset: Dataset, index: int) -> Image:
    return load_image(dataset.images[index])


def _name(source: Any) -> tuple[bytes, Any]:
    """Name an image by its content: a file's bytes, else its pixels; and give what to decode."""
    if isinstance(source, (str, Path)):
        try:
            data = Path(source).read_bytes()
        except (OSError, ValueError):
            load_image(source)  # raises with a reason that people understand
            raise
        return hashlib.blake2b(data, digest_size=NAME_BYTES).digest(), source
    if isinstance(source, bytes):
        return hashlib.blake2b(source, digest_size=NAME_BYTES).digest(), source
    image = load_image(source)
    return bytes.fromhex(image_id(image)), image


def _views_name(content: bytes, spec: ViewSpec, id: str) -> bytes:
    """Name what an image's views are made of: the image, or the images generated from it."""
    if not spec.generated:
        return content
    digest = hashlib.blake2b(digest_size=NAME_BYTES)
    for file in generated_files(spec, id):
        digest.update(_name(file)[0])
    return digest.digest()


def _encode(backbone: Backbone, fresh: Sequence[_Loaded]) -> dict[int, dict[ViewSpec, Tensor]]:
    """Half-precision features of rendered images, one by one, on the CPU."""
    return {
        loaded.index: {spec: _encode_one(backbone, views).half() for spec, views in loaded.rendered.items()}
        for loaded in fresh
    }


def _encode_on_device(
    backbone: Backbone, fresh: Sequence[_Loaded], seed: int
) -> dict[int, dict[ViewSpec, Tensor]]:
    """Half-precision features, on the CPU, of many images at once; halved when the device runs out of memory."""
    groups: dict[tuple[ViewSpec, ...], list[_Loaded]] = {}
    for loaded in fresh:
        groups.setdefault(loaded.missing, []).append(loaded)
    found: dict[int, dict[ViewSpec, Tensor]] = {}
    for specs, group in groups.items():
        drawn = [spec for spec in specs if not spec.generated]
        waiting = [group]
        while waiting:
            part = waiting.pop(0)
            try:
                decoded = [loaded.decoded for loaded in part if loaded.decoded is not None]
                encoded = [encode_decoded(backbone, decoded, drawn, seed=seed)] if drawn else []
                if len(drawn) < len(specs):
                    encoded.append(encode(backbone, [loaded.rendered for loaded in part]))
            except torch.cuda.OutOfMemoryError:
                if len(part) == 1:
                    raise
                torch.cuda.empty_cache()
                log.info("out of GPU memory with %d images: going on with half as many", len(part))
                waiting = [part[: len(part) // 2], part[len(part) // 2 :], *waiting]
                continue
            for spec in specs:
                own = encoded[-1] if spec.generated else encoded[0]
                for loaded, features in zip(part, own.features(spec).half().cpu(), strict=True):
                    found.setdefault(loaded.index, {})[spec] = features
    return found


def _encode_one(backbone: Backbone, views: Tensor) -> Tensor:
    """Features (N, D) of one image's views on the CPU, the same to the last bit however many there are.

    A pass of few views may round another way than one of many: the clean view always has a pass to itself, as it has
    for the methods that need no other, and the last pass of the others is filled up.
    """
    clean, rest = views[:1], views[1:]
    features = backbone.encode_images(clean)
    if not len(rest):
        return features
    filled = torch.cat([rest, rest[-1:].expand(-len(rest) % CPU_CHUNK, -1, -1, -1)])
    return torch.cat([features, backbone.encode_images(filled)[: len(rest)]])


def _item(loaded: _Loaded, encoded: dict[ViewSpec, Tensor], caches: Sequence[FeatureCache]) -> Item:
    features = {}
    for cache in caches:
        if cache.spec in encoded:
            features[cache.spec] = encoded[cache.spec]
        elif cache.spec not in loaded.errors:
            place = cache.find(loaded.names[cache.spec])
            assert place is not None  # the worker left it out because it is there
            features[cache.spec] = cache.read(place)
    return Item(loaded.index, features, loaded.errors)
