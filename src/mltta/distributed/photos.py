"""The photos of a shard, read where they are worked on, one after another and no more than are asked for soon."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from mltta.data.hf import open_images
from mltta.distributed.listing import hf_parts
from mltta.distributed.plan import Shard, names_of
from mltta.errors import ImageError
from mltta.images.budget import MAX_BYTES
from mltta.images.kinds import SUFFIXES
from mltta.images.remote import is_url
from mltta.output.parquet import open_pyarrow
from mltta.session.prepare import Photo
from mltta.storage.filesystems import Folder, is_remote, open_store, open_stream

#: rows of a Parquet file in memory at a time
_ROWS = 32
#: columns of text that say where an image is
_PATHS = ("path", "image", "file", "file_name", "filename", "image_path", "filepath", "uri", "url")


@dataclass(frozen=True)
class Far:
    """A photo in a store, fetched when it is its turn."""

    base: str
    name: str

    def __call__(self) -> bytes:
        try:
            with open_stream(self.base, self.name) as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ImageError(f"{self.name}: cannot be read: {error}") from None
        return content


@dataclass(frozen=True)
class Row:
    """A photo in a Hugging Face dataset, fetched when it is its turn."""

    of: str
    row: int

    def __call__(self) -> bytes | Path:
        try:
            found: bytes | Path = _opened(self.of)[self.row]
        except Exception as error:  # whatever reads its files raises almost anything
            raise ImageError(f"{self.of}/{self.row}: cannot be read: {error}") from None
        return found


@lru_cache(maxsize=2)
def _opened(given: str) -> Sequence[Any]:
    return open_images(*hf_parts(given))


@dataclass(frozen=True)
class Failed:
    """A photo that could not even be reached, and why."""

    why: str

    def __call__(self) -> bytes:
        raise ImageError(self.why)


def photos_of(shard: Shard, folder: Folder) -> Iterator[Photo]:
    """A shard's photos, in order, each named as its record will be."""
    if not is_remote(shard.base):
        with suppress(OSError):  # relative names mean what they meant where the command was given
            os.chdir(shard.base)
    if shard.kind == "names":
        return (_by_name(shard.base, name) for name in names_of(shard, folder))
    return {"parquet": _parquet, "tar": _tar, "hf": _hf}[shard.kind](shard)


def _by_name(base: str, name: str) -> Photo:
    source: Any = Far(base, name) if is_remote(name) else name if is_url(name) else Path(name)
    return Photo(0, name, source, PurePosixPath(name).stem)


def _hf(shard: Shard) -> Iterator[Photo]:
    for row in range(shard.start, shard.start + shard.count):
        yield Photo(0, f"{shard.of}/{row}", Row(shard.of, row), str(row))


def _parquet(shard: Shard) -> Iterator[Photo]:
    """Rows of a Parquet file; where it cannot be read, each row that was promised says so."""
    done = 0
    try:
        for name, source in _cells(shard):
            yield Photo(0, name, source, PurePosixPath(name).stem)
            done += 1
    except (OSError, ValueError, ImageError) as error:  # pyarrow's own errors are both
        why = str(error).strip().splitlines()[0]
        for row in range(shard.start + done, shard.start + shard.count):
            yield Photo(
                0, f"{shard.of}#{row}", Failed(f"{shard.of}: its row {row} cannot be read: {why}"), str(row)
            )


def _cells(shard: Shard) -> Iterator[tuple[str, Any]]:
    """Each row's name, and its bytes or where they are."""
    _, parquet = open_pyarrow()
    store = open_store(shard.base)[0] if is_remote(shard.of) else None
    path = shard.of.partition("://")[2] if store is not None else shard.of
    with parquet.ParquetFile(path, filesystem=store) as file:
        column = image_column(file.schema_arrow, shard.of)
        groups, first = _groups(file.metadata, shard.start, shard.start + shard.count)
        row = first
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=[column]):
            for cell in batch.column(0):
                if shard.start <= row < shard.start + shard.count:
                    yield _cell(cell.as_py(), shard, row)
                row += 1
                if row == shard.start + shard.count:
                    return


def _cell(held: Any, shard: Shard, row: int) -> tuple[str, Any]:
    name = f"{shard.of}#{row}"
    if isinstance(held, dict):  # as Hugging Face writes images
        held = held.get("bytes") or held.get("path")
    if isinstance(held, str):
        if is_remote(held) or is_url(held) or os.path.isabs(held):
            photo = _by_name(shard.base, held)
        else:
            beside = shard.of.rpartition("/")[0]
            photo = _by_name(shard.base, f"{beside}/{held}" if beside else held)
        return photo.id, photo.source
    return name, held if held else Failed(f"{name}: this row holds no image")


def image_column(schema: Any, where: str) -> str:
    """The column of images: Hugging Face's, else the only one of bytes, else one of text that is called like a path."""
    from pyarrow import types

    def named(test: Callable[[Any], bool]) -> list[str]:
        return [field.name for field in schema if test(field.type)]

    images = named(lambda kind: types.is_struct(kind) and kind.get_field_index("bytes") >= 0)
    data = named(lambda kind: types.is_binary(kind) or types.is_large_binary(kind))
    texts = [
        name
        for name in named(lambda kind: types.is_string(kind) or types.is_large_string(kind))
        if name in _PATHS
    ]
    for found in (images, data):
        if len(found) > 1:
            found = [name for name in found if name == "image"]
        if found:
            return found[0]
    if texts:
        return min(texts, key=_PATHS.index)
    raise ImageError(f"{where} has no column of images: bytes, or text called {', '.join(_PATHS[:4])} …")


def _groups(metadata: Any, start: int, stop: int) -> tuple[list[int], int]:
    """The row groups that hold some rows, and the number of the first row in them."""
    groups: list[int] = []
    first = at = 0
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        if at < stop and at + size > start:
            first = at if not groups else first
            groups.append(group)
        at += size
    return groups, first


def _tar(shard: Shard) -> Iterator[Photo]:
    """The photos in a tar, as WebDataset keeps them; where it breaks off, a last row says so."""
    found = 0
    try:
        with open_stream(shard.base, shard.of) as file, tarfile.open(fileobj=file, mode="r|*") as members:
            for member in members:
                if not member.isfile() or PurePosixPath(member.name).suffix.lower() not in SUFFIXES:
                    continue
                held = members.extractfile(member)
                name = f"{shard.of}/{member.name}"
                source: Any = Failed(f"{name}: too large to be read") if member.size > MAX_BYTES else None
                yield Photo(
                    0, name, source or (held.read() if held else b""), PurePosixPath(member.name).stem
                )
                found += 1
    except (OSError, tarfile.TarError, EOFError) as error:
        why = f"{shard.of}: this tar cannot be read behind its first {found:,} photos: {error}"
        yield Photo(0, shard.of, Failed(why), "")
