"""A library: a folder with an index of photos in SQLite, their vectors, and their features.

Photos are identified by content, so a photo that was moved or copied keeps its features, scores and corrections. A row
of the index counts once its transaction is complete, and everything that it refers to is synced to disk before. So a
kill at any moment loses at most the photos of the last second.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import MlttaError
from mltta.labels import LabelSet
from mltta.library import vectors
from mltta.session.cache import FeatureCache
from mltta.storage.lock import locked

if TYPE_CHECKING:
    from mltta.images.specs import AnySpec
    from mltta.model.backbone import Backbone

FORMAT, INDEX, VECTORS = "mltta-library-1", "index.sqlite", "vectors.f16"
SCHEMA = """
BEGIN;
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE photos (id INTEGER PRIMARY KEY, content BLOB NOT NULL UNIQUE, taken TEXT);
CREATE TABLE files (path BLOB PRIMARY KEY, size INTEGER, modified INTEGER, photo INTEGER, error TEXT);
CREATE TABLE lists (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, about TEXT NOT NULL, used INTEGER);
CREATE TABLE scores (list INTEGER, photo INTEGER, scores BLOB NOT NULL, PRIMARY KEY (list, photo));
CREATE TABLE answers (label TEXT, photo INTEGER, yes INTEGER NOT NULL, PRIMARY KEY (label, photo)) WITHOUT ROWID;
INSERT INTO about VALUES ('format', '"mltta-library-1"');
COMMIT;
"""
SHOWING = ("threshold", "top-k", "keywords_from", "keywords-from", "where", "shown_as", "version")


@dataclass(frozen=True)
class File:
    """A file of the library: its photo's number and content, when it was taken or else changed, or an error."""

    path: Path
    photo: int
    content: bytes
    date: str
    stamp: list[int]
    error: str | None = None


class Library:
    """An open library; a context manager. Several processes may read it, one may ``write`` or ``create`` it."""

    def __init__(self, folder: Path | str, *, write: bool = False, create: bool = False):
        self.folder = Path(folder)
        self._write, self._create = write or create, create

    def __enter__(self) -> Library:
        with self._errors(), ExitStack() as stack:
            index = self.folder / INDEX
            if not self._create and not index.is_file():
                raise MlttaError(f"{self.folder} is not a library; make one: mltta tag PHOTOS --library DIR")
            if self._create:
                known = not self.folder.exists() or index.is_file()
                if not known and (not self.folder.is_dir() or {*os.listdir(self.folder)} - {".lock"}):
                    raise MlttaError(f"{self.folder} exists and is not a library; choose another --library")
                self.folder.mkdir(parents=True, exist_ok=True)
            if self._write:
                stack.enter_context(locked(self.folder / ".lock", str(self.folder)))
            self.db = sqlite3.connect(index, isolation_level=None, check_same_thread=False)
            stack.callback(self.db.close)
            if self._create and not self.db.execute("SELECT 1 FROM sqlite_master").fetchone():
                self.db.executescript(SCHEMA)
            if self.about("format") != FORMAT:
                raise MlttaError(f"{self.folder} was written by another version of mltta")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of SQLite and of the disk to errors that name the library and say what to do."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            why, damaged = (
                getattr(error, "strerror", None) or str(error),
                type(error) is sqlite3.DatabaseError,
            )
            todo = (
                "It is damaged: restore a backup"
                if damaged
                else "What it already contains is safe. Try again"
            )
            raise MlttaError(f"{self.folder} cannot be used: {why}. {todo}") from error

    @contextmanager
    def changes(self) -> Iterator[None]:
        """One transaction: all changes of the block, or none."""
        with self._errors():
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query finds."""
        with self._errors():
            return self.db.execute(query, values).fetchall()

    def about(self, name: str) -> Any:
        """A property of the library as plain data; None if it is not set."""
        found = self.rows("SELECT value FROM about WHERE name = ?", name)
        return json.loads(found[0][0]) if found else None

    def features(self) -> list[dict[str, Any]]:
        """What the stored features depend on: one key per spec (`feature_key`), with their dimensions."""
        return list(self.about("features") or [])

    def accept(self, keys: Sequence[Mapping[str, Any]], dim: int, create: bool = False) -> None:
        """Refuse a model or views other than those of the library; with ``create``, an empty one takes them over."""
        wanted = json.loads(json.dumps([{**key, "dim": dim} for key in keys]))
        held = self.features()
        if not held and create:
            with self.changes():
                self.db.execute("INSERT INTO about VALUES ('features', ?)", (json.dumps(wanted),))
            return
        for key in wanted:
            differ = [[name for name in key if key[name] != one[name] and name != "model"] for one in held]
            if fewest := min(differ, key=len, default=["weights"]):
                said = " and ".join(
                    "views (method or its settings)" if name == "spec" else name for name in fewest
                )
                made = held[0]["model"] if held else "no model"
                how = "Use the same model, method and engine, or create another library"
                raise MlttaError(f"{self.folder} was made with {made}, and now other {said}. {how}")

    def kept(self, backbone: Backbone, spec: AnySpec, seed: int) -> FeatureCache:
        """The feature cache of one spec, for a tagger."""
        return FeatureCache(backbone, spec, seed, self.folder / "features", packed=True)

    def files(self) -> list[File]:
        """All files by path; those that could not be read have an error and no content."""
        changed = "strftime('%Y-%m-%dT%H:%M:%S', modified / 1000000000, 'unixepoch')"
        found = self.rows(
            f"SELECT path, coalesce(photo, 0), coalesce(content, x''), coalesce(taken, {changed}, ''), size, "
            "modified, error FROM files LEFT JOIN photos ON photo = photos.id ORDER BY path"
        )
        own = ((Path(os.fsdecode(one[0])), one) for one in found)
        return [File(path, one[1], one[2], one[3], [one[4], one[5]], one[6]) for path, one in own]

    def number_of(self, content: bytes) -> int | None:
        """The number of a photo by content; None if it is not in the library."""
        found = self.rows("SELECT id FROM photos WHERE content = ?", content)
        return int(found[0][0]) if found else None

    @property
    def count(self) -> int:
        """The highest number of a photo."""
        return int(self.rows("SELECT coalesce(max(id), 0) FROM photos")[0][0])

    def vectors(self) -> NDArray[np.float16]:
        """The vectors (N, D) of all photos, memory-mapped; row i belongs to photo i + 1."""
        with self._errors():
            return vectors.read(
                self.folder / VECTORS, self.count, (self.features() or [{"dim": 1}])[0]["dim"]
            )

    def list_of(self, about: Mapping[str, Any], labels: LabelSet, use: bool = True) -> int:
        """The number of a tagger's label list; ``use`` makes it the one that searches and exports refer to."""
        own = {name: value for name, value in about.items() if name not in SHOWING}
        digest = hashlib.blake2b(json.dumps(own, sort_keys=True).encode(), digest_size=16).hexdigest()
        said = json.dumps({**about, "list": labels.source, "titles": labels.titles})
        with self.changes():
            insert = "INSERT INTO lists (digest, about) VALUES (?, ?) ON CONFLICT DO UPDATE SET about = excluded.about"
            self.db.execute(insert, (digest, said))
            last = "used = (SELECT coalesce(max(used), 0) + 1 FROM lists)"
            self.db.execute(f"UPDATE lists SET {last} WHERE digest = ? AND ?", (digest, use))
        return int(self.rows("SELECT id FROM lists WHERE digest = ?", digest)[0][0])

    def last_list(self) -> tuple[int, dict[str, Any]]:
        """Number and settings of the label list that was used last."""
        found = self.rows("SELECT id, about FROM lists WHERE used ORDER BY used DESC LIMIT 1")
        if not found:
            raise MlttaError(f"{self.folder} is empty: run mltta tag PHOTOS --library {self.folder}")
        return int(found[0][0]), dict(json.loads(found[0][1]))

    def last_labels(self) -> LabelSet:
        """The label list that was used last."""
        _, about = self.last_list()
        synonyms = (tuple(words.split(" | ")) if words else () for words in about["synonyms"])
        names, texts, titles = (tuple(about[name]) for name in ("labels", "prompted_as", "titles"))
        return LabelSet(names, texts, tuple(synonyms), about["list"], titles)

    def scores(
        self, number: int, labels: Sequence[str], files: Iterable[File]
    ) -> Iterator[NDArray[np.float32] | None]:
        """The scores (C,) of photos for a label list, in order; None if they have none. Corrected labels: 1 or 0."""
        place, corrected = {label: i for i, label in enumerate(labels)}, dict[int, list[tuple[int, bool]]]()
        for label, own in self.answers().items():
            for photo, is_so in own.items() if label in place else ():
                corrected.setdefault(photo, []).append((place[label], is_so))
        for file in files:
            found = self.rows("SELECT scores FROM scores WHERE list = ? AND photo = ?", number, file.photo)
            scores = np.frombuffer(found[0][0], "<f4").copy() if found else None
            if scores is not None:
                for column, is_so in corrected.get(file.photo, ()):
                    scores[column] = is_so
            yield scores

    def answers(self) -> dict[str, dict[int, bool]]:
        """Corrections: for each label, the photos that show it, and those that do not."""
        found: dict[str, dict[int, bool]] = {}
        for label, photo, yes in self.rows("SELECT label, photo, yes FROM answers ORDER BY label, photo"):
            found.setdefault(label, {})[photo] = bool(yes)
        return found
