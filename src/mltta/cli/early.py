"""The seconds that a model's libraries take to load: photos are decoded meanwhile, and no garbage is looked for."""

from __future__ import annotations

import atexit
import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from PIL.Image import Image

from mltta.cli.inputs import Source, Stamp, stamp
from mltta.errors import ImageError
from mltta.images.decode import load_image
from mltta.session.execution import cores

#: bytes of the photos that wait: some 170, as one of 12 megapixels takes 3 million at its working size
MOST_BYTES = 512 << 20
# Pillow keeps four bytes for a pixel of three colours, and some thousand for an image.
_PIXEL, _IMAGE = 4, 4096


@contextmanager
def loading() -> Iterator[None]:
    """Python's garbage collector rests: a million objects come that stay, and looking through them takes a second."""
    collects, first = gc.isenabled(), "torch" not in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if first:
            gc.freeze()  # what was loaded is left alone from here on
            atexit.register(gc.unfreeze)  # or libraries tell at the end of what they think was lost
        if collects:
            gc.enable()


class Early:
    """The first photos of a run, decoded by threads for as long as its ``with`` lasts, within a budget of memory.

    What is not decoded then, or cannot be, is left to whoever tags it, who tells of errors too.

    Args:
        files: in the order they will be asked for; what is not a file is passed over.
        most: bytes that may wait.
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
