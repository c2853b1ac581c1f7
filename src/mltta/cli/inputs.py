"""Which images `mltta tag` tags: files, folders that may still fill, addresses, one on the standard input."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from mltta.errors import ConfigError, MlttaError
from mltta.images.budget import MAX_BYTES
from mltta.images.find import Found, is_url, no_such, search_images
from mltta.storage.folders import is_remote

STDIN = "-"
#: what a file was when it was read: its size and the time it was changed
Stamp = list[int]


class Piped(bytes):
    """The image that came on the standard input."""

    def __str__(self) -> str:
        return STDIN


#: a file, an address, or what came on the standard input
Source = Path | str | Piped


def refuse_missing(given: Sequence[str]) -> None:
    """Say it at once, before anything is loaded, if nothing of what was given is there."""
    if given and not any(
        path == STDIN or os.path.exists(path) or is_url(path) or is_remote(path) for path in given
    ):
        raise no_such(given[0])


class Sources:
    """Images as they were given; asked again, it finds what has been added to the folders.

    Args:
        given: images, folders of images, addresses, or - for the standard input.
        allow_urls: whether addresses are fetched.
    """

    def __init__(self, given: Sequence[str | Path], allow_urls: bool = False):
        names = list(dict.fromkeys(str(path) for path in given))
        urls = [name for name in names if "://" in name and is_url(name)]
        if urls and not allow_urls:
            raise MlttaError(f"{urls[0]}: give --allow-urls, and it is fetched")
        #: images that are not files
        self.others: list[Source] = [
            _read_stdin() if one == STDIN else one for one in names if one in (STDIN, *urls)
        ]
        self.paths = [Path(name) for name in names if name not in (STDIN, *urls)]
        #: paths that do not exist, unless nothing does
        self.missing = [path for path in self.paths if not path.exists()]
        if len(self.missing) < len(names):
            self.paths = [path for path in self.paths if path not in self.missing]
        #: by image: the folder it was found in, or None if it was given itself
        self.roots: dict[Source, Path | None] = {}
        #: a line about files that look like photos but cannot be read, if there are some
        self.skipped = ""
        self._apart: list[Path] = []
        self._sizes: dict[Source, Stamp | None] = {}

    def keep_apart(self, folders: Iterable[Path]) -> None:
        """Leave out folders that the run itself writes to, whose pictures are not photos."""
        given = [path.resolve() for path in self.paths]
        around = {folder for path in given for folder in (path, *path.parents)}
        self._apart = [folder.resolve() for folder in folders if folder.resolve() not in around]

    def refuse_others(self, effects: bool, output: bool) -> None:
        """Refuse what only files allow.

        Args:
            effects: something is done with each photo besides tagging it.
            output: tags are kept in a file, which a later run continues.
        """
        if self.others and effects:
            raise ConfigError(f"{self.others[0]}: pictures, keywords and copies need files; save it first")
        if output and any(isinstance(one, Piped) for one in self.others):
            raise ConfigError(f"{STDIN}: -o finds an image again by its name; save the image first")

    def find(self) -> list[Source]:
        """Every image once, in the order of the paths; those of a folder sorted."""
        self.roots = {}
        skipped: Counter[str] = Counter()
        for path in self.paths:
            root = path if path.is_dir() else None
            found = search_images([path])
            skipped += found.skipped
            for file in found.images:
                if root is None or not self._apart or not {*file.resolve().parents}.intersection(self._apart):
                    self.roots.setdefault(file, root)
        self.roots |= dict.fromkeys(self.others)
        self.skipped = str(Found([], skipped))
        return list(self.roots)

    def settled(self) -> list[Source]:
        """Those that have not changed since the last call: a file that is being copied still grows."""
        found = self.find()
        before, self._sizes = self._sizes, {file: stamp(file) for file in found}
        return [file for file in found if file in before and before[file] == self._sizes[file]]


def _read_stdin() -> Piped:
    """One image, no larger than a file may be."""
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if not data:
        raise MlttaError("-: nothing came on the standard input; give an image: mltta tag - < photo.jpg")
    return Piped(data)


def stamp(source: Source) -> Stamp | None:
    """A file's size and time; None if there is no file."""
    if not isinstance(source, Path):
        return None
    try:
        found = os.stat(source)
    except (OSError, ValueError):
        return None
    return [found.st_size, found.st_mtime_ns]
