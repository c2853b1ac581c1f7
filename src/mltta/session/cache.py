"""View features on disk: encoded once, read by every method and every ablation after that.

A store is a folder named by the hash of all that a feature depends on (``key.json`` spells it out). Every process
that adds to it writes files of its own, ``<name>.features`` (half precision, one row an image), ``<name>.sums`` (a
checksum of each row and its name) and ``<name>.images`` (the images' 16-byte names), and a row counts once its name is
written: a kill at any point loses at most what was being written, and two processes never disturb each other. A row
that is not what was written, or stands at another's place, is passed over and encoded again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import MlttaError
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.session.prepare import NAME_BYTES, rendering
from mltta.storage import atomic
from mltta.storage.folders import cache_folder
from mltta.storage.reading import SETTINGS, UNREADABLE, read_bytes

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")
SUM_BYTES = 4
FORMAT = "mltta-features-2"


def feature_key(backbone: Backbone, spec: AnySpec, seed: int) -> dict[str, Any]:
    """Everything that the features of an image's views depend on, but the image."""
    return {
        "format": FORMAT,
        "model": backbone.name,
        "weights": backbone.image_fingerprint,
        "arithmetic": backbone.arithmetic,
        "preprocess": asdict(backbone.preprocess),
        "rendering": rendering(backbone, spec),
        "seed": seed,
        "spec": asdict(spec),
    }


class FeatureCache:
    """The features of one kind of views: what other runs have encoded, and a place for what this one adds.

    Views that another store holds among more are found there: 16 are the first 16 of 64.
    """

    def __init__(self, backbone: Backbone, spec: AnySpec, seed: int = 0, folder: Path | None = None):
        """Args:
        folder: where stores are (default: in the user's cache folder).
        """
        key = feature_key(backbone, spec, seed)
        top = folder if folder is not None else feature_folder()
        self.spec, self._key = spec, key
        self._home = top / hashlib.blake2b(json.dumps(key).encode(), digest_size=8).hexdigest()
        self._writer: _Writer | None = None
        self._full = False
        rest = _without_spec(key)
        stores = [store for store in list_stores(top) if _without_spec(store.key) == rest]
        self._shards = [s for store in stores if store.spec.covers(spec) for s in _read_shards(store)]
        names = [shard.names for shard in self._shards]
        joined = np.concatenate(names) if names else np.empty((0, NAME_BYTES), np.uint8)
        # searched by their first 8 bytes, then compared whole
        heads = np.ascontiguousarray(joined[:, :8]).view(np.uint64)[:, 0]
        self._order = heads.argsort(kind="stable")
        self._heads = heads[self._order]
        self._first = np.cumsum([0, *map(len, names)])

    def __len__(self) -> int:
        return len(self._heads)

    def holds(self, image: bytes) -> bool:
        """Whether an image's features are cached and undamaged; what this run adds is found when it is opened again."""
        found = list(self._find(image))
        if any(shard.whole(row) for shard, row in found):
            return True
        if found:
            log.warning("%s: a damaged row is ignored, and its image encoded again", found[-1][0])
        return False

    def read(self, image: bytes) -> NDArray[np.float16]:
        """Half-precision features (N, D) of an image that the cache ``holds``, which has looked at its checksum."""
        wanted = slice(None) if isinstance(self.spec, LocalSpec) else slice(self.spec.count)
        found = list(self._find(image))
        for shard, row in found:
            if len(found) == 1 or shard.whole(row):
                return np.array(shard.features[row, wanted])
        raise KeyError(image)

    def _find(self, image: bytes) -> Iterator[tuple[_Shard, int]]:
        """Where rows of that name are: mostly one, several where an earlier one was found damaged."""
        head = np.frombuffer(image[:8], np.uint64)[0]
        at = int(np.searchsorted(self._heads, head))
        while at < len(self._heads) and self._heads[at] == head:
            place = int(self._order[at])
            number = int(np.searchsorted(self._first, place, side="right")) - 1
            shard, row = self._shards[number], place - int(self._first[number])
            if shard.names[row].tobytes() == image:
                yield shard, row
            at += 1

    def write(self, images: Sequence[bytes], features: Sequence[NDArray[np.float16]]) -> None:
        """Keep half-precision features (N, D) of some images; a full disk costs the cache, not the run."""
        if self._full:
            return
        try:
            if self._writer is None:
                self._writer = _Writer(self._home, self._key, *features[0].shape)
            self._writer.write(images, features)
        except OSError as error:
            log.warning("features are not cached from here on: %s", error)
            self._full = True


@dataclass(frozen=True)
class Store:
    """A kept kind of features: what they depend on, and the folder they are in."""

    folder: Path
    key: dict[str, Any]
    #: features of an image, and numbers of a feature
    views: int
    dim: int

    @property
    def spec(self) -> AnySpec:
        held = self.key["spec"]
        return LocalSpec(**held) if "window" in held else ViewSpec(**held)

    @property
    def images(self) -> int:
        return sum(len(shard.names) for shard in _read_shards(self))

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.folder.iterdir())


def feature_folder() -> Path:
    """Where features are kept unless told otherwise."""
    return cache_folder() / "features"


def list_stores(folder: Path | None = None) -> list[Store]:
    """Every readable store in a folder."""
    found = []
    for file in sorted((folder if folder is not None else feature_folder()).glob("*/key.json")):
        try:
            held = json.loads(read_bytes(file, SETTINGS, MlttaError))
            key, sizes = held["key"], (held["views"], held["dim"])
            whole = all(isinstance(size, int) and 0 < size < 1 << 20 for size in sizes)
            if whole and key["format"] == FORMAT and {"model", "seed", "arithmetic"} <= key.keys():
                found.append(Store(file.parent, key, *sizes))
                _ = found[-1].spec  # a spec of another version does not read
        except (OSError, MlttaError, *UNREADABLE):
            found = [store for store in found if store.folder != file.parent]
            log.warning("%s is not a readable feature store, so it is ignored", file.parent)
    return found


def clear(store: Store) -> None:
    """Remove a store and all its features."""
    try:
        shutil.rmtree(store.folder)
    except OSError as error:
        raise MlttaError(f"{store.folder} could not be removed: {error.strerror}") from error


def _without_spec(key: dict[str, Any]) -> str:
    # the model's name is for people: the hash of the weights says which it is
    return json.dumps({name: value for name, value in key.items() if name not in ("spec", "model")})


class _Shard:
    """The whole rows of one writer's files, mapped; sent to a worker they are mapped there again, not copied."""

    def __init__(self, file: Path, rows: int, views: int, dim: int):
        self._made_of = (file, rows, views, dim)
        #: (rows, 16)
        self.names: NDArray[np.uint8] = np.memmap(file, np.uint8, "r", shape=(rows, NAME_BYTES))
        data = file.with_suffix(".features")
        self.features: NDArray[np.float16] = np.memmap(data, np.float16, "r", shape=(rows, views, dim))
        self.sums: NDArray[np.uint32] = np.memmap(file.with_suffix(".sums"), "<u4", "r", shape=(rows,))

    def __str__(self) -> str:
        return str(self._made_of[0].with_suffix(".features"))

    def whole(self, row: int) -> bool:
        """Whether a row is what was written under its name."""
        return int(self.sums[row]) == _sum(self.names[row].tobytes(), self.features[row])

    def __reduce__(self) -> tuple[type[_Shard], tuple[Path, int, int, int]]:
        return _Shard, self._made_of


def _read_shards(store: Store) -> Iterator[_Shard]:
    """Map the files of every writer that has finished a row."""
    views, dim = store.views, store.dim
    for file in sorted(store.folder.glob("*.images")):
        data, sums = file.with_suffix(".features"), file.with_suffix(".sums")
        if not data.is_file():
            continue
        if not sums.is_file():
            log.warning("%s has no checksums, so its features are encoded again", data)
            continue
        rows = min(
            file.stat().st_size // NAME_BYTES,
            sums.stat().st_size // SUM_BYTES,
            data.stat().st_size // (2 * views * dim),
        )
        if rows:
            yield _Shard(file, rows, views, dim)


def _sum(name: bytes, row: NDArray[np.float16]) -> int:
    return zlib.crc32(row.data, zlib.crc32(name))


class _Writer:
    """Appends rows: the features and their checksums first, safely on disk, then their names."""

    def __init__(self, home: Path, key: dict[str, Any], views: int, dim: int):
        home.mkdir(parents=True, exist_ok=True)
        said, file = json.dumps({"key": key, "views": views, "dim": dim}, indent=1) + "\n", home / "key.json"
        if not file.is_file() or file.read_bytes() != said.encode():  # missing, or damaged
            atomic.write(file, said.encode())
        name = f"{time.time_ns():x}-{os.getpid()}"
        self._features, self._sums, self._names = (
            (home / f"{name}.{kind}").open("wb") for kind in ("features", "sums", "images")
        )

    def write(self, images: Sequence[bytes], features: Sequence[NDArray[np.float16]]) -> None:
        rows = [np.ascontiguousarray(one) for one in features]
        self._features.write(b"".join(row.tobytes() for row in rows))
        sums = np.array([_sum(name, row) for name, row in zip(images, rows, strict=True)], "<u4")
        self._sums.write(sums.tobytes())
        for file in (self._features, self._sums):  # safely on disk before their names
            file.flush()
            os.fsync(file.fileno())
        self._names.write(b"".join(images))
        self._names.flush()
