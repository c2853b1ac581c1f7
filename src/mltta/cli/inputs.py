"""Input images of `mltta tag`: files, folders (also watched ones), URLs and standard input.

The first files are decoded while the model's libraries load, which takes seconds.
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
#: memory limit for waiting photos: about 170 photos of 12 megapixels at their working size
MOST_BYTES = 512 << 20
# Pillow uses four bytes per RGB pixel and a few thousand per image.
_PIXEL, _IMAGE = 4, 4096
#: size and modification time of a file when it was read
Stamp = list[int]


class Piped(bytes):
    """An image read from standard input."""

    def __str__(self) -> str:
        return STDIN

    @classmethod
    def read(cls) -> Piped:
        """Read one image, up to the size limit of files."""
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
        if not data:
            raise MlttaError("Standard input is empty. Pipe an image: mltta tag - < photo.jpg")
        return cls(data)


#: a file, a URL, or an image from standard input
Source = Path | str | Piped


def refuse_missing(given: Sequence[str]) -> None:
    """Fail before anything is loaded if none of the inputs exists."""
    there = (path == STDIN or os.path.exists(path) or is_url(path) or is_remote(path) for path in given)
    if given and not any(there):
        raise no_such(given[0])


class Sources:
    """Images, folders, URLs, and - for standard input; searching again finds images added to folders."""

    def __init__(self, given: Sequence[str | Path], allow_urls: bool = False):
        names = list(dict.fromkeys(str(path) for path in given))
        urls = [name for name in names if "://" in name and is_url(name)]
        if urls and not allow_urls:
            raise MlttaError(f"{urls[0]}: use --allow-urls to fetch images from URLs")
        #: images that are not files
        self.others: list[Source] = [
            Piped.read() if one == STDIN else one for one in names if one in (STDIN, *urls)
        ]
        self.paths = [Path(name) for name in names if name not in (STDIN, *urls)]
        #: paths that do not exist, unless none exists
        self.missing = [path for path in self.paths if not path.exists()]
        if len(self.missing) < len(names):
            self.paths = [path for path in self.paths if path not in self.missing]
        #: folder that each image was found in; None if the image itself was given
        self.roots: dict[Source, Path | None] = {}
        #: message about files that look like photos but cannot be read, if any
        self.skipped = ""
        self._apart: list[Path] = []
        self._sizes: dict[Source, Stamp | None] = {}

    def keep_apart(self, folders: Iterable[Path]) -> None:
        """Exclude folders that the run itself writes to."""
        given = [path.resolve() for path in self.paths]
        around = {folder for path in given for folder in (path, *path.parents)}
        self._apart = [folder.resolve() for folder in folders if folder.resolve() not in around]

    def refuse_others(self, effects: bool, output: bool) -> None:
        """Refuse options that require files: effects on each photo, and resumable output."""
        if self.others and effects:
            raise ConfigError(f"{self.others[0]}: pictures, keywords and copies need files; save it first")
        if output and any(isinstance(one, Piped) for one in self.others):
            raise ConfigError(f"{STDIN}: -o needs named files, so that runs can resume; save the image first")

    def find(self) -> list[Source]:
        """Find every image once, in the order of the paths; folders are sorted."""
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
        """Find images that have not changed since the last call, so that no half-copied file is read."""
        found = self.find()
        before, self._sizes = self._sizes, {file: stamp(file) for file in found}
        return [file for file in found if file in before and before[file] == self._sizes[file]]


def stamp(source: Source) -> Stamp | None:
    """Return a file's size and modification time, or None if it does not exist."""
    if isinstance(source, Path):
        with suppress(OSError, ValueError):
            found = os.stat(source)
            return [found.st_size, found.st_mtime_ns]
    return None


@contextmanager
def loading(quiet: bool = False) -> Iterator[None]:
    """Show a message on a terminal if loading takes more than a second.

    Garbage collection pauses meanwhile: scanning the million objects of libraries takes a second.
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
            gc.freeze()  # exclude loaded objects from later collections
            atexit.register(gc.unfreeze)  # otherwise some libraries warn about leaks at exit
        if collects:
            gc.enable()


class Early:
    """Decode the first photos of a run in threads during the ``with`` block, within a memory limit.

    Other photos, and those that cannot be decoded, are left to the tagger, which reports errors.
    Files must be in the order in which they are requested; other sources are skipped.
    """

    def __init__(self, files: Iterable[Source] = (), *, most: int = MOST_BYTES):
        self._files, self._left = iter(files), most
        self._ready: dict[Source, tuple[Stamp, Image]] = {}
        self._lock, self._ended = threading.Lock(), False
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Early:
        for i in range(max(1, cores() - 1)):  # leave one core for loading
            self._threads.append(threading.Thread(target=self._work, name=f"mltta-early-{i}"))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for thread in self._threads:
            thread.join()

    def take(self, file: Source) -> Source | Image:
        """Return the decoded file once; the file itself if it was not decoded or has changed."""
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
