"""Adding photos to a library: the destination of `mltta tag --library`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import ConfigError
from mltta.images.decode import date_taken
from mltta.library.index import VECTORS, File, Library
from mltta.library.vectors import photo_vector, put
from mltta.session.cache import FeatureCache, feature_key
from mltta.session.prepare import Photo, content_of

if TYPE_CHECKING:
    from mltta.tagger import Tagger, Tags

#: photos and seconds between transactions, the most that a kill can lose
PHOTOS, SECONDS = 32, 1.0
#: size and modification time of a file when it was read
Stamp = list[int] | None


class Intake:
    """Photos that are tagged and added to a library, in one transaction per second."""

    def __init__(self, library: Library, folders: Sequence[Path] = ()):
        """Files that are gone from the ``folders`` searched will be removed from the library."""
        self.library, self.paths = library, [library.folder]
        self._folders = [os.path.join(os.path.abspath(folder), "") for folder in folders]
        self._waiting: list[tuple[str, Stamp, bytes, NDArray[np.float32] | None, str | None]] = []
        #: content and date of files that were opened
        self._opened: dict[str, tuple[bytes, str | None]] = {}
        self._known = {str(file.path): file for file in library.files() if not file.error}
        self._scored: set[int] = set()
        self._caches: list[FeatureCache] | None = None
        self._last = time.monotonic()

    def begin(self, tagger: Tagger, use: bool = True) -> None:
        """Check that the library's features are those of the tagger, and find what is already done."""
        method, features = tagger.method, tagger.session.features
        if method.online or "pixels" in method.requires:
            why = "learns from earlier photos" if method.online else "renders views again while it scores"
            raise ConfigError(f"{method.name} {why}, so it cannot be used with a library; use auto or clip")
        keys = [feature_key(tagger.backbone, spec, features.seed) for spec in features.specs]
        self.library.accept(keys, method.text.features.shape[-1], create=True)
        self._labels, self._stream = tagger.labels.display, features
        self._reopen()
        self.list = self.library.list_of(tagger.about(), tagger.labels, use)
        found = self.library.rows("SELECT photo FROM scores WHERE list = ?", self.list)
        self._scored = {photo for (photo,) in found}

    def _reopen(self) -> None:
        """Open the feature caches again, to read what was written since."""
        held = self._stream
        self._caches = [self.library.kept(held.backbone, spec, held.seed) for spec in held.specs]

    def done(self, image: str, stamp: Stamp) -> bool:
        """Whether a file has scores and features, and has not changed; before ``begin``, whether it is known."""
        file = self._known.get(os.path.abspath(image))
        if file is None or file.stamp != stamp or self._caches is None:
            return file is not None and file.stamp == stamp
        return file.photo in self._scored and all(file.content in one for one in self._caches)

    def photo(self, file: Path, stamp: Stamp, take: Callable[[Path], Any]) -> Photo:
        """A photo for the tagger, named by its content in the background; ``take`` may return a decoded image."""
        return Photo(0, str(file), partial(self._open, file, stamp, take), file.stem)

    def _open(self, file: Path, stamp: Stamp, take: Callable[[Path], Any]) -> Photo:
        known = self._known.get(path := os.path.abspath(file))
        if known is not None and known.stamp == stamp:
            self._opened[path] = known.content, None
        else:
            self._opened[path] = content_of(file)[0], date_taken(file)
        return Photo(0, str(file), take(file), file.stem, content=self._opened[path][0])

    def add(self, record: Mapping[str, Any], stamp: Stamp, tags: Tags) -> None:
        """Add a photo's scores or its error."""
        path = os.path.abspath(record["image"])
        content, taken = self._opened.pop(path, (b"", None))
        scores = None
        if tags.error is None:
            by = {item["label"]: item["score"] for item in tags}
            scores = np.array([by[name] for name in self._labels], np.float32)
        self._waiting.append((path, stamp, content, scores, taken if tags.error is None else tags.error))
        if len(self._waiting) >= PHOTOS or time.monotonic() - self._last > SECONDS:
            self._save()

    def stored(self, file: File) -> Photo:
        """A photo of the library for the tagger, which reads its features and not the file."""
        self._opened[str(file.path)] = file.content, None
        return Photo(0, str(file.path), file.path, file.path.stem, content=file.content)

    def grow(self, sources: Sequence[str]) -> None:
        """Do nothing: there is nothing to write before the first photo."""

    def finish(self, sources: Sequence[str], interrupted: bool = False) -> None:
        """Save what is waiting, and remove files that are gone from the folders searched."""
        self._save()
        found = {os.path.abspath(one) for one in sources}
        held = [os.fsdecode(path) for (path,) in self.library.rows("SELECT path FROM files")]
        inside = (path for path in held if path not in found and path.startswith(tuple(self._folders)))
        gone = [] if interrupted else [(os.fsencode(path),) for path in inside if not os.path.exists(path)]
        with self.library.changes():
            self.library.db.executemany("DELETE FROM files WHERE path = ?", gone)

    def _save(self) -> None:
        """Write what is waiting in one transaction; vectors are synced to disk before it ends."""
        library, vectors = self.library, dict[int, NDArray[np.float16]]()
        if self._waiting:  # includes the features that were written since
            self._reopen()
        with library.changes():
            before, do = library.count, library.db.execute
            for path, stamp, content, scores, said in self._waiting:
                row = (os.fsencode(path), *(stamp or (None, None)))
                if scores is None:
                    do("INSERT OR REPLACE INTO files VALUES (?, ?, ?, NULL, ?)", (*row, said))
                    continue
                do("INSERT OR IGNORE INTO photos (content, taken) VALUES (?, ?)", (content, said))
                photo = library.number_of(content) or 0
                if photo > before and photo not in vectors:
                    vectors[photo] = photo_vector([cache.read(content)[0] for cache in self._caches or ()])
                do("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, NULL)", (*row, photo))
                values = (self.list, photo, scores.astype("<f4").tobytes())
                do("INSERT OR REPLACE INTO scores VALUES (?, ?, ?)", values)
                self._known[path] = File(Path(path), photo, content, "", list(stamp or ()))
                self._scored.add(photo)
            if vectors:
                put(library.folder / VECTORS, vectors)
        self._waiting.clear()
        self._last = time.monotonic()
