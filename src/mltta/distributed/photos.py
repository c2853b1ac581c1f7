"""Reads the photos of a shard one after another, in the worker that tags them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate, islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from mltta.distributed.listing import open_hf, open_table
from mltta.distributed.plan import Shard, names_of
from mltta.errors import ImageError
from mltta.images.budget import MAX_BYTES
from mltta.images.find import SUFFIXES, is_url
from mltta.session.prepare import Photo
from mltta.storage.folders import Folder, is_remote, open_stream

#: a photo's name, and its bytes or location
Cell: TypeAlias = tuple[str, Any]
#: rows of a Parquet file in memory at once
_ROWS = 32
#: names of text columns with image locations
_PATHS = ("path", "image", "file", "file_name", "filename", "image_path", "filepath", "uri", "url")


def photos_of(shard: Shard, folder: Folder) -> Iterator[Photo]:
    """Yield a shard's photos in order, named as in their records."""
    if not is_remote(shard.base):
        with suppress(OSError):  # resolve relative names against the driver's working directory
            os.chdir(shard.base)
    if shard.kind == "names":
        cells: Iterable[Cell] = ((name, _by_name(shard.base, name)) for name in names_of(shard, folder))
    else:
        cells = {"parquet": _parquet, "tar": _tar, "hf": _hf}[shard.kind](shard)
    for name, source in cells:
        yield Photo(0, name, source, PurePosixPath(name).stem)


def _by_name(base: str, name: str) -> Any:
    if is_remote(name):
        return partial(_from_store, base, name)
    return name if is_url(name) else Path(name)


def _from_store(base: str, name: str) -> bytes:
    try:
        with open_stream(base, name) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ImageError(f"{name}: cannot be read: {error}") from None


def _hf(shard: Shard) -> Iterator[Cell]:
    """Yield rows of a Hugging Face dataset."""
    for row in range(shard.start, shard.start + shard.count):
        yield f"{shard.of}/{row}", partial(_from_dataset, shard.of, row)


def _from_dataset(given: str, row: int) -> Any:
    try:
        return _opened(given)[row]
    except Exception as error:  # dataset readers raise many types
        raise ImageError(f"{given}/{row}: cannot be read: {error}") from None


_opened = lru_cache(maxsize=2)(open_hf)


def _fail(why: str) -> bytes:
    """Raise the error of a photo that could not be reached."""
    raise ImageError(why)


def _parquet(shard: Shard) -> Iterator[Cell]:
    """Yield rows of a Parquet file; if it cannot be read, every row gets the error."""
    done = 0
    try:
        for cell in _cells(shard):
            yield cell
            done += 1
    except (OSError, ValueError, ImageError) as error:  # includes pyarrow's own errors
        why = str(error).strip().splitlines()[0]
        for row in range(shard.start + done, shard.start + shard.count):
            yield f"{shard.of}#{row}", partial(_fail, f"{shard.of}: row {row} cannot be read: {why}")


def _cells(shard: Shard) -> Iterator[Cell]:
    """Yield each row's name, and its bytes or location."""
    with open_table(shard.base, shard.of) as file:
        column = image_column(file.schema_arrow, shard.of)
        stop = shard.start + shard.count
        groups, first = _groups(file.metadata, shard.start, stop)
        batches = file.iter_batches(_ROWS, row_groups=groups, columns=[column])
        cells = (cell for batch in batches for cell in batch.column(0))
        for row, cell in enumerate(islice(cells, stop - first), start=first):
            if row >= shard.start:
                yield _cell(cell.as_py(), shard, row)


def _cell(held: Any, shard: Shard, row: int) -> Cell:
    name = f"{shard.of}#{row}"
    if isinstance(held, dict):  # Hugging Face's image format
        held = held.get("bytes") or held.get("path")
    if isinstance(held, str):
        known = is_remote(held) or is_url(held) or os.path.isabs(held)
        path = held if known else "/".join(filter(None, (shard.of.rpartition("/")[0], held)))
        return path, _by_name(shard.base, path)
    return name, held or partial(_fail, f"{name}: this row contains no image")


def image_column(schema: Any, where: str) -> str:
    """Find the image column: Hugging Face's, else the only binary column, else a text column named like a path."""
    from pyarrow import types

    def named(*tests: Callable[[Any], bool]) -> list[str]:
        return [field.name for field in schema if any(test(field.type) for test in tests)]

    images = named(lambda kind: types.is_struct(kind) and kind.get_field_index("bytes") >= 0)
    data = named(types.is_binary, types.is_large_binary)
    texts = named(types.is_string, types.is_large_string)
    for found in (images, data):
        if len(found) == 1 or "image" in found:
            return found[0] if len(found) == 1 else "image"
    if known := [name for name in _PATHS if name in texts]:
        return known[0]
    raise ImageError(f"{where} has no image column (binary, or text named {', '.join(_PATHS[:4])} …)")


def _groups(metadata: Any, start: int, stop: int) -> tuple[list[int], int]:
    """The row groups that contain some rows, and the number of their first row."""
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    starts = [0, *accumulate(sizes)]
    groups = [group for group in range(len(sizes)) if starts[group] < stop and starts[group + 1] > start]
    return groups, starts[groups[0]] if groups else 0


def _tar(shard: Shard) -> Iterator[Cell]:
    """Yield the photos in a tar, as in WebDataset; if it is truncated, a last row gets the error."""
    found = 0
    try:
        with open_stream(shard.base, shard.of) as file, tarfile.open(fileobj=file, mode="r|*") as members:
            for member in members:
                if not member.isfile() or PurePosixPath(member.name).suffix.lower() not in SUFFIXES:
                    continue
                name = f"{shard.of}/{member.name}"
                source: Any = partial(_fail, f"{name}: too large")
                if member.size <= MAX_BYTES:
                    held = members.extractfile(member)
                    source = held.read() if held else b""
                yield name, source
                found += 1
    except (OSError, tarfile.TarError, EOFError) as error:
        why = f"{shard.of}: this tar cannot be read beyond its first {found:,} photos: {error}"
        yield shard.of, partial(_fail, why)
