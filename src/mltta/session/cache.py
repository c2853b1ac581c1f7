"""Disk cache of view features: encoded once, reused by every method and ablation.

A store is a folder named by the hash of everything a feature depends on (spelled out in ``key.json``). Each process
that adds to it writes its own files: ``<name>.features`` (half precision, one row per image), ``<name>.sums`` (a
checksum of each row and its name) and ``<name>.images`` (the images' 16-byte names). A row counts once its name is
written, so a kill loses at most the row being written, and concurrent writers do not interfere. Rows that are damaged
or misplaced are ignored and encoded again.
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
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import MlttaError
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec
from mltta.session.packing import pack, packed_type, unpack
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
    """Everything that view features depend on, except the image."""
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
    """Features of one kind of views: those already on disk, plus those added by this run.

    Views are also found in stores with more views: 16 views are the first 16 of 64.
    """

    def __init__(
        self,
        backbone: Backbone,
        spec: AnySpec,
        seed: int = 0,
        folder: Path | None = None,
        packed: bool = False,
    ):
        """Args:
        folder: the folder of all stores (default: in the user's cache folder).
        packed: store eight bits per value. Methods then score what is stored, also in the run that encodes it.
        """
        key = feature_key(backbone, spec, seed) | ({"packed": True} if packed else {})
        self.packed = packed
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
        # search by the first 8 bytes, then compare the full name
        heads = np.ascontiguousarray(joined[:, :8]).view(np.uint64)[:, 0]
        self._order = heads.argsort(kind="stable")
        self._heads = heads[self._order]
        self._first = np.cumsum([0, *map(len, names)])

    def __len__(self) -> int:
        return len(self._heads)

    def __contains__(self, image: bytes) -> bool:
        """Whether an image's features are cached, damaged or not."""
        return any(True for _ in self._find(image))

    def holds(self, image: bytes) -> bool:
        """Whether an image's features are cached and undamaged; features added by this run count after reopening."""
        found = list(self._find(image))
        if any(shard.whole(row) for shard, row in found):
            return True
        if found:
            log.warning("%s: a cached row is damaged; encoding its image again", found[-1][0])
        return False

    def read(self, image: bytes) -> NDArray[np.float16]:
        """Half-precision features (N, D) of an image for which ``holds`` was true (it verifies the checksum)."""
        wanted = slice(None) if isinstance(self.spec, LocalSpec) else slice(self.spec.count)
        found = list(self._find(image))
        for shard, row in found:
            if len(found) == 1 or shard.whole(row):
                held = np.array(shard.features[row, wanted])
                return unpack(held) if self.packed else held
        raise KeyError(image)

    def _find(self, image: bytes) -> Iterator[tuple[_Shard, int]]:
        """Rows with that name: usually one, several if an earlier one was damaged."""
        head = np.frombuffer(image[:8], np.uint64)[0]
        at = int(np.searchsorted(self._heads, head))
        while at < len(self._heads) and self._heads[at] == head:
            place = int(self._order[at])
            number = int(np.searchsorted(self._first, place, side="right")) - 1
            shard, row = self._shards[number], place - int(self._first[number])
            if shard.names[row].tobytes() == image:
                yield shard, row
            at += 1

    def write(
        self, images: Sequence[bytes], features: Sequence[NDArray[np.float16]]
    ) -> Sequence[NDArray[np.float16]]:
        """Append half-precision features (N, D) of some images, and return them as they will be read.

        If the disk is full, the run continues uncached; a packed cache raises an error.
        """
        if self._full:
            return features
        rows = [pack(one) for one in features] if self.packed else features
        try:
            with atomic.writing(self._home.parent) if self.packed else nullcontext():
                if self._writer is None:
                    self._writer = _Writer(self._home, self._key, *features[0].shape)
                self._writer.write(images, rows)
        except OSError as error:
            log.warning("cannot write features; the rest of this run is not cached: %s", error)
            self._full = True
        return list(map(unpack, rows)) if self.packed else features


@dataclass(frozen=True)
class Store:
    """A feature store on disk: its key and its folder."""

    folder: Path
    key: dict[str, Any]
    #: features per image, and dimensions per feature
    views: int
    dim: int

    @property
    def row(self) -> np.dtype[Any]:
        """The type of one image's features."""
        packed = packed_type(self.dim) if self.key.get("packed") else (np.float16, (self.dim,))
        return np.dtype((packed, (self.views,)))

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
    """The default folder of feature stores."""
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
                _ = found[-1].spec  # a spec of another version cannot be parsed
        except (OSError, MlttaError, *UNREADABLE):
            found = [store for store in found if store.folder != file.parent]
            log.warning("%s: ignored, not a readable feature store", file.parent)
    return found


def clear(store: Store) -> None:
    """Remove a store and all its features."""
    try:
        shutil.rmtree(store.folder)
    except OSError as error:
        raise MlttaError(f"{store.folder}: cannot be removed: {error.strerror}") from error


def _without_spec(key: dict[str, Any]) -> str:
    # the model's name is informative only: the hash of the weights identifies the model
    return json.dumps({name: value for name, value in key.items() if name not in ("spec", "model")})


class _Shard:
    """The complete rows of one writer's files, memory-mapped; worker processes map them again instead of copying."""

    def __init__(self, file: Path, rows: int, row: np.dtype[Any]):
        self._made_of = (file, rows, row)
        #: (rows, 16)
        self.names: NDArray[np.uint8] = np.memmap(file, np.uint8, "r", shape=(rows, NAME_BYTES))
        data = file.with_suffix(".features")
        self.features: NDArray[Any] = np.memmap(data, row.base, "r", shape=(rows, *row.shape))
        self.sums: NDArray[np.uint32] = np.memmap(file.with_suffix(".sums"), "<u4", "r", shape=(rows,))

    def __str__(self) -> str:
        return str(self._made_of[0].with_suffix(".features"))

    def whole(self, row: int) -> bool:
        """Whether a row matches its checksum and name."""
        return int(self.sums[row]) == _sum(self.names[row].tobytes(), self.features[row])

    def __reduce__(self) -> tuple[type[_Shard], tuple[Path, int, np.dtype[Any]]]:
        return _Shard, self._made_of


def _read_shards(store: Store) -> Iterator[_Shard]:
    """Map the files of every writer with at least one complete row."""
    row = store.row
    for file in sorted(store.folder.glob("*.images")):
        data, sums = file.with_suffix(".features"), file.with_suffix(".sums")
        if not data.is_file():
            continue
        if not sums.is_file():
            log.warning("%s: checksums are missing; encoding its features again", data)
            continue
        rows = min(
            file.stat().st_size // NAME_BYTES,
            sums.stat().st_size // SUM_BYTES,
            data.stat().st_size // row.itemsize,
        )
        if rows:
            yield _Shard(file, rows, row)


def _sum(name: bytes, row: NDArray[Any]) -> int:
    return zlib.crc32(row.data, zlib.crc32(name))


class _Writer:
    """Appends rows: features and checksums are synced to disk first, then their names."""

    def __init__(self, home: Path, key: dict[str, Any], views: int, dim: int):
        home.mkdir(parents=True, exist_ok=True)
        said, file = json.dumps({"key": key, "views": views, "dim": dim}, indent=1) + "\n", home / "key.json"
        if not file.is_file() or file.read_bytes() != said.encode():  # missing, or damaged
            atomic.write(file, said.encode())
        name = f"{time.time_ns():x}-{os.getpid()}"
        self._features, self._sums, self._names = (
            (home / f"{name}.{kind}").open("wb") for kind in ("features", "sums", "images")
        )

    def write(self, images: Sequence[bytes], features: Sequence[NDArray[Any]]) -> None:
        rows = [np.ascontiguousarray(one) for one in features]
        self._features.write(b"".join(row.tobytes() for row in rows))
        sums = np.array([_sum(name, row) for name, row in zip(images, rows, strict=True)], "<u4")
        self._sums.write(sums.tobytes())
        for file in (self._features, self._sums):  # synced to disk before their names
            file.flush()
            os.fsync(file.fileno())
        self._names.write(b"".join(images))
        self._names.flush()
