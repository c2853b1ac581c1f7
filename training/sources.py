"""The manifest of labeled photos: repositories, the folders or files that have a label, and their licenses.

`sources.jsonl.gz` has one line per repository:

    repository, commit, license
    group       what its photos show: animals, sports, ...
    absent      "all": each photo has all labels of this source that apply; "classes": each photo shows one
                of its labels and none of the others; "none": what is not given is unknown
    photos      terms by folder, path or pattern: the label, then synonyms and broader words, divided by "|";
                the longest folder wins, else the longest beginning of a path (one * at its end), else a pattern
    table       instead of folders: a CSV file with the columns `name` and `label`, and the folder of the photos;
                `photos` then gives the terms of each label
    size, cap   keep only photos of this size; keep so many photos per folder
"""

from __future__ import annotations

import csv
import fnmatch
import gzip
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from training.repository import Entry

MANIFEST = Path(__file__).with_name("sources.jsonl.gz")
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
# In these people are often shown and seldom named.
SHOW_PEOPLE = frozenset({"sports", "activities", "professions", "clothing", "instruments"})


@dataclass(frozen=True)
class Source:
    """One repository of labeled photos."""

    repository: str
    commit: str
    license: str
    group: str
    absent: str
    photos: dict[str, str]
    table: dict[str, str] | None = None
    size: tuple[int, int] | None = None
    cap: int | None = None

    @classmethod
    def of(cls, line: dict[str, Any]) -> Source:
        if line.get("absent") not in ("all", "classes", "none"):
            raise ValueError(
                f"{line.get('repository')}: `absent` must be all, classes or none, not {line.get('absent')!r}"
            )
        size = line.get("size")
        return cls(**{**line, "size": (size[0], size[1]) if size else None})

    @property
    def key(self) -> str:
        """A checksum of the whole entry."""
        return hashlib.sha256(json.dumps(self.__dict__, sort_keys=True).encode()).hexdigest()

    def terms(self, entries: Sequence[Entry], table: bytes | None = None) -> dict[str, tuple[str, ...]]:
        """The terms of each photo by its path.

        Args:
            entries: the files of the commit.
            table: the bytes of the table if the source has one.
        """
        given = {path: tuple(terms.split("|")) for path, terms in self.photos.items()}
        starts = {path[:-1]: terms for path, terms in given.items() if path.find("*") == len(path) - 1}
        lengths = sorted({len(start) for start in starts}, reverse=True)
        patterns = {path: terms for path, terms in given.items() if "*" in path[:-1]}
        labels = self._labels(table) if self.table else {}
        found: dict[str, tuple[str, ...]] = {}
        for entry in entries:
            path = PurePosixPath(entry.path)
            if path.suffix.lower() not in IMAGES:
                continue
            if self.table:
                under = self.table["under"]
                own = given.get(labels.get(path.stem, "")) if path.is_relative_to(under) else None
            else:
                folders = (entry.path, *map(str, path.parents))  # the longest first
                own = next((given[f] for f in folders if f in given), None)
                own = own or next((starts[p] for n in lengths if (p := entry.path[:n]) in starts), None)
                own = own or next((t for p, t in patterns.items() if fnmatch.fnmatch(entry.path, p)), None)
            if own:
                found[entry.path] = own
        return found

    def _labels(self, table: bytes | None) -> dict[str, str]:
        """The label of each photo in the table, by the photo's name without folder and ending."""
        if table is None or self.table is None:
            return {}
        rows = csv.DictReader(io.StringIO(table.decode("utf-8-sig")))
        name, label = self.table["name"], self.table["label"]
        return {PurePosixPath(row[name]).stem: row[label] for row in rows if row.get(name)}


def read(path: Path = MANIFEST) -> list[Source]:
    """The sources of a manifest, in the order of their names."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return sorted((Source.of(json.loads(line)) for line in file), key=lambda s: s.repository)
