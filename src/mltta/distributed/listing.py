"""Lists photo sources lazily: local and remote folders, Parquet, tars, Hugging Face datasets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal

from mltta.errors import ConfigError, MlttaError
from mltta.images.find import SUFFIXES, Found, is_url, no_such, why_unreadable
from mltta.output.parquet import open_pyarrow
from mltta.storage.folders import is_remote, list_store, open_store

HF = "hf:"


@dataclass(frozen=True)
class Piece:
    """One photo ("name"), or many by number: rows of a Parquet file or dataset, or all of a tar, uncounted.

    ``base`` is the folder that names are relative to, or the address of a store.
    """

    kind: Literal["name", "hf", "parquet", "tar"]
    base: str
    of: str
    count: int = 0


@dataclass
class Listing:
    """The sources, listed lazily in an order determined by names only; one folder is in memory at a time."""

    given: Sequence[str]
    skipped: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Piece]:
        _refuse_overlap(self.given)
        for one in self.given:
            yield from self._pieces(one)

    def __str__(self) -> str:
        """A note about unreadable files that look like photos, if there are any."""
        return str(Found([], self.skipped))

    def _pieces(self, given: str) -> Iterator[Piece]:
        here = os.getcwd()
        if given.startswith(HF):
            yield Piece("hf", here, given, len(open_hf(given)))
        elif is_url(given):
            yield Piece("name", here, given)
        elif is_remote(given):
            yield from self._far(given)
        elif "*" in given and not Path(given).exists():
            folder = Path(given).parent
            if not folder.is_dir():
                raise MlttaError(f"{given}: {folder} is not a folder")
            for name in sorted(os.listdir(folder)):
                if fnmatchcase(name, Path(given).name):
                    yield from self._one(here, str(folder / name))
        elif Path(given).is_dir():
            for below in self._walk(partial(_list_folder, Path(given))):
                yield Piece("name", here, str(Path(given, below)))
        elif Path(given).exists():
            yield from self._one(here, given)
        else:
            raise no_such(given)

    def _one(self, base: str, file: str) -> Iterator[Piece]:
        """A file: a photo, unless its extension is that of a container."""
        suffix = PurePosixPath(file.lower()).suffix
        if suffix not in (".parquet", ".pq"):
            yield Piece("tar" if suffix == ".tar" else "name", base, file)
            return
        try:
            with open_table(base, file) as table:
                rows = int(table.metadata.num_rows)
        except (OSError, ValueError) as error:
            raise MlttaError(f"{file} is not a readable Parquet file: {error}") from None
        yield Piece("parquet", base, file, rows)

    def _far(self, address: str) -> Iterator[Piece]:
        from pyarrow import fs

        store, path = open_store(address)
        scheme, last = address.partition("://")[0], PurePosixPath(path).name
        try:
            if "*" in last:
                above = _above(address)
                for name, is_folder in list_store(above):
                    if not is_folder and fnmatchcase(name, last):
                        yield from self._one(above, f"{scheme}://{PurePosixPath(path).parent}/{name}")
            elif store.get_file_info(path).type == fs.FileType.File:
                yield from self._one(_above(address), f"{scheme}://{path}")
            else:
                for below in self._walk(partial(list_store, address)):
                    yield Piece("name", address, f"{scheme}://{path}/{below}")
        except OSError as error:
            raise MlttaError(f"{address} cannot be listed: {error}") from None

    def _walk(self, entries: Callable[[str], Iterable[tuple[str, bool]]], below: str = "") -> Iterator[str]:
        """Yield photos below a folder in order of their paths, with folders and files sorted together."""
        for name, is_folder in entries(below):
            inner = f"{below}/{name}" if below else name
            suffix = PurePosixPath(name).suffix.lower()
            if name.startswith("."):
                continue
            if is_folder:
                yield from self._walk(entries, inner)
            elif why_unreadable(suffix) is not None:
                self.skipped[suffix] += 1
            elif suffix in SUFFIXES:
                yield inner


def open_hf(given: str) -> Sequence[Any]:
    """Open the images of a Hugging Face dataset by name or folder and split: hf:org/photos#train, hf:saved/."""
    from mltta.data.hf import open_images

    root, _, split = given.removeprefix(HF).partition("#")
    return open_images(root, split or None)


def open_table(base: str, file: str) -> Any:
    """Open a Parquet file, local or remote; reads only its footer."""
    store, path = (open_store(base)[0], file.partition("://")[2]) if is_remote(file) else (None, file)
    return open_pyarrow()[1].ParquetFile(path, filesystem=store)


def _list_folder(folder: Path, below: str) -> list[tuple[str, bool]]:
    """List a folder, sorted: names, and whether each is a folder; links to folders are skipped."""
    try:
        with os.scandir(folder / below) as entries:
            found = sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)
    except OSError as error:
        raise MlttaError(f"{folder / below}: this folder cannot be read: {error.strerror}") from None
    return [(name, is_folder) for name, is_folder, is_link in found if not (is_folder and is_link)]


def _above(address: str) -> str:
    """The address of a file's folder, with the same protocol."""
    path, question, query = address.partition("?")
    return path.rpartition("/")[0] + question + query


def _refuse_overlap(given: Sequence[str]) -> None:
    """Refuse sources that contain a photo twice: repeated names, or a folder and something in it."""
    far, named, near = groups = [list[PurePath]() for _ in range(3)]
    for one in given:
        if is_remote(one):
            far.append(PurePosixPath(open_store(one)[1]))
        elif one.startswith(HF) or is_url(one):
            named.append(PurePosixPath(one))
        else:
            near.append(Path(one).resolve())
    for group in groups:
        counts = Counter(group)
        for path, times in counts.items():
            if times > 1 or not counts.keys().isdisjoint(path.parents):
                raise ConfigError(f"{path} is given more than once, directly or within a folder")
