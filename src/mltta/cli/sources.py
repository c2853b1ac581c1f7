"""Which files a run of tagging is about, and which of a folder that fills are whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from mltta.images.load import find_images

#: what a file was when it was read: its size and the time it was changed
Stamp = list[int]


class Sources:
    """Files and folders as they were given; asked again, it finds what has come since.

    Args:
        paths: images, or folders of them.
        apart: folders that the run itself writes to, whose pictures are no photos.
    """

    def __init__(self, paths: Sequence[Path], apart: Iterable[Path] = ()):
        self.paths = list(paths)
        given = [path.resolve() for path in self.paths]
        around = {folder for path in given for folder in (path, *path.parents)}
        self._apart = [folder.resolve() for folder in apart if folder.resolve() not in around]
        #: by file: the folder it was found under, or None where it was given itself
        self.roots: dict[Path, Path | None] = {}
        self._sizes: dict[Path, Stamp | None] = {}

    def find(self) -> list[Path]:
        """Every image once, in the order of the paths; those of a folder sorted."""
        self.roots = {}
        for path in self.paths:
            root = path if path.is_dir() else None
            for file in find_images([path]):
                if root is None or not self._own(file):
                    self.roots.setdefault(file, root)
        return list(self.roots)

    def settled(self) -> list[Path]:
        """Those that are as they were when it was asked last: a file that is being copied still grows."""
        found = self.find()
        before, self._sizes = self._sizes, {file: stamp(file) for file in found}
        return [file for file in found if file in before and before[file] == self._sizes[file]]

    def _own(self, file: Path) -> bool:
        if not self._apart:
            return False
        parents = file.resolve().parents
        return any(folder in parents for folder in self._apart)


def stamp(file: Path) -> Stamp | None:
    """A file's size and time; None where there is no file."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    return [found.st_size, found.st_mtime_ns]
