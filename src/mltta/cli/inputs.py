"""Which images `mltta tag` tags: files, folders that may still fill, addresses, one on the standard input.

The first files are decoded in the seconds that a model's libraries take to load.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer
from PIL.Image import Image

from mltta.errors import ConfigError, ImageError, MlttaError
from mltta.images.budget import MAX_BYTES
from mltta.images.decode import load_image
from mltta.images.find import Found, is_url, no_such, search_images
from mltta.model.cpu_passes import cores
from mltta.storage.folders import is_remote

STDIN = "-"
#: bytes of the photos that wait: some 170, as one of 12 megapixels takes 3 million at its working size
MOST_BYTES = 512 << 20
# Pillow keeps four bytes for a pixel of three colours, and some thousand for an image.
_PIXEL, _IMAGE = 4, 4096
#: what a file was when it was read: its size and the time it was changed
Stamp = list[int]


class Piped(bytes):
    """The image that came on the standard input."""

    def __str__(self) -> str:
        return STDIN

    @classmethod
    def read(cls) -> Piped:
        """One image, no larger than a file may be."""
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        if not data:
            raise MlttaError("-: nothing came on the standard input; give an image: mltta tag - < photo.jpg")
        return cls(data)


#: a file, an address, or what came on the standard input
Source = Path | str | Piped


def refuse_missing(given: Sequence[str]) -> None:
    """Say it at once, before anything is loaded, if nothing of what was given is there."""
    there = (path == STDIN or os.path.exists(path) or is_url(path) or is_remote(path) for path in given)
    if given and not any(there):
        raise no_such(given[0])


class Sources:
    """Images, folders, addresses, - for the standard input; asked again, it finds what has been added to folders."""

    def __init__(self, given: Sequence[str | Path], allow_urls: bool = False):
        names = list(dict.fromkeys(str(path) for path in given))
        urls = [name for name in names if "://" in name and is_url(name)]
        if urls and not allow_urls:
            raise MlttaError(f"{urls[0]}: give --allow-urls, and it is fetched")
        #: images that are not files
        self.others: list[Source] = [
            Piped.read() if one == STDIN else one for one in names if one in (STDIN, *urls)
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
        """Refuse what only files allow: effects on each photo, and output that a later run continues."""
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


def stamp(source: Source) -> Stamp | None:
    """A file's size and time; None if there is no file."""
    if isinstance(source, Path):
        with suppress(OSError, ValueError):
            found = os.stat(source)
            return [found.st_size, found.st_mtime_ns]
    return None


@contextmanager
def loading(quiet: bool = False) -> Iterator[None]:
    """Say so on a screen if loading takes a second.

    Python's garbage collector rests: a million objects come that stay, and looking through them takes a second.
    """
    notice = threading.Timer(1.0, typer.echo, ["Loading model…"], {"err": True})
    notice.daemon = True
    if not quiet and sys.stderr.isatty():
        notice.start()
    collects, first = gc.isenabled(), "torch" not in sys.modules
    gc.disable()
    try:
        yield
    finally:
        notice.cancel()
        if first:
            gc.freeze()  # what was loaded is left alone from here on
            atexit.register(gc.unfreeze)  # or libraries tell at the end of what they think was lost
        if collects:
            gc.enable()


class Early:
    """The first photos of a run, decoded by threads for as long as its ``with`` lasts, within a budget of memory.

    What is not decoded then, or cannot be, is left to whoever tags it, who tells of errors too.
    Files come in the order they will be asked for; what is not a file is passed over.
    """

    def __init__(self, files: Iterable[Source] = (), *, most: int = MOST_BYTES):
        self._files, self._left = iter(files), most
        self._ready: dict[Source, tuple[Stamp, Image]] = {}
        self._lock, self._ended = threading.Lock(), False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Early:
        for i in range(max(1, cores() - 1)):  # one core is left to the loading
            self._threads.append(threading.Thread(target=self._work, name=f"mltta-early-{i}"))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join()

    def take(self, file: Source) -> Source | Image:
        """The file decoded, once; or the file itself, if it was not, or has changed since."""
        seen, image = self._ready.pop(file, (None, None))
        return file if image is None or seen != stamp(file) else image

    def _work(self) -> None:
        while not self._ended:
            with self._lock:
                file = next(self._files, None)
            if file is None:
                return
            seen = stamp(file)
            if not isinstance(file, Path) or seen is None:
                continue
            with suppress(ImageError):
                image = load_image(file, working=True)
                cost = _IMAGE + _PIXEL * image.width * image.height
                with self._lock:
                    self._ended |= cost > self._left
                    if cost <= self._left:
                        self._left -= cost
                        self._ready[file] = seen, image
