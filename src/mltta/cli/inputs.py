"""Which images a run of tagging is about: files, folders that may still fill, addresses, one on the standard input."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mltta.errors import ConfigError, MlttaError
from mltta.images.budget import MAX_BYTES
from mltta.images.find import Found, no_such, search_images
from mltta.images.remote import is_url
from mltta.storage.filesystems import is_remote

STDIN = "-"
#: what a file was when it was read: its size and the time it was changed
Stamp = list[int]


class Piped(bytes):
    """The image that came on the standard input."""

    def __str__(self) -> str:
        return STDIN


#: a file, an address, or what came on the standard input
Source = Path | str | Piped


@dataclass(frozen=True)
class Others:
    """Images that are no files, by what they were called."""

    names: list[str]
    sources: list[Source]

    def check(self, effects: bool, output: bool) -> None:
        """Refuse what only files allow.

        Args:
            effects: something is to be done with each photo besides naming its labels.
            output: tags are kept in a file, which a later run continues.
        """
        if self.names and effects:
            raise ConfigError(
                f"{self.names[0]}: pictures, keywords and copies are made of files; save it first"
            )
        if STDIN in self.names and output:
            raise ConfigError(
                f"{STDIN}: what is kept with -o is found again by its name; save the image first"
            )


def refuse_missing(given: Sequence[str]) -> None:
    """Say it at once, before anything is loaded, if nothing of what was given is there."""
    if given and not any(
        path == STDIN or is_url(path) or is_remote(path) or os.path.exists(path) for path in given
    ):
        raise no_such(given[0])


def open_others(given: Sequence[str], allow_urls: bool) -> Others:
    """Addresses, where they are allowed, and the standard input."""
    names = list(dict.fromkeys(path for path in given if path == STDIN or is_url(path)))
    if any(map(is_url, names)) and not allow_urls:
        raise MlttaError(f"{next(filter(is_url, names))}: give --allow-urls, and it is fetched")
    return Others(names, [_read_stdin() if name == STDIN else name for name in names])


def _read_stdin() -> Piped:
    """One image, no larger than a file may be."""
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if not data:
        raise MlttaError("-: nothing came on the standard input; give an image: mltta tag - < photo.jpg")
    return Piped(data)


class Sources:
    """Files and folders as they were given; asked again, it finds what has come since.

    Args:
        paths: images, or folders of them.
        apart: folders that the run itself writes to, whose pictures are no photos.
        others: images that are no files, behind those that are.
    """

    def __init__(self, paths: Sequence[Path], apart: Iterable[Path] = (), others: Sequence[Source] = ()):
        self.paths, self.others = list(paths), list(others)
        given = [path.resolve() for path in self.paths]
        around = {folder for path in given for folder in (path, *path.parents)}
        self._apart = [folder.resolve() for folder in apart if folder.resolve() not in around]
        #: by image: the folder it was found under, or None where it was given itself
        self.roots: dict[Source, Path | None] = {}
        #: a line about files that look like photos and cannot be read here, if there are some
        self.skipped = ""
        self._sizes: dict[Source, Stamp | None] = {}

    def find(self) -> list[Source]:
        """Every image once, in the order of the paths; those of a folder sorted."""
        self.roots = {}
        skipped: Counter[str] = Counter()
        for path in self.paths:
            root = path if path.is_dir() else None
            found = search_images([path])
            skipped += found.skipped
            for file in found.images:
                if root is None or not self._own(file):
                    self.roots.setdefault(file, root)
        self.roots |= dict.fromkeys(self.others)
        self.skipped = str(Found([], skipped))
        return list(self.roots)

    def settled(self) -> list[Source]:
        """Those that are as they were when it was asked last: a file that is being copied still grows."""
        found = self.find()
        before, self._sizes = self._sizes, {file: stamp(file) for file in found}
        return [file for file in found if file in before and before[file] == self._sizes[file]]

    def _own(self, file: Path) -> bool:
        if not self._apart:
            return False
        parents = file.resolve().parents
        return any(folder in parents for folder in self._apart)


def stamp(source: Source) -> Stamp | None:
    """A file's size and time; None where there is no file."""
    if not isinstance(source, Path):
        return None
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return None
    return [found.st_size, found.st_mtime_ns]
