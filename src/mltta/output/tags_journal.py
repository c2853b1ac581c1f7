"""What is done of an output, kept beside it: the truth that its files are written from, whatever their format.

The first line says what the run was begun with. Then there is one line per image, and one for every time a file was
written, with its length and checksum, so that a file that was changed since is recognised. A line that is damaged or
cut off means an image that is not done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from mltta.errors import MlttaError
from mltta.output.formats import Record
from mltta.storage import atomic
from mltta.storage.journal import line_content, read_lines, sealed_line

FORMAT = "mltta-tags-2"
OTHERWISE = "give another -o, or --overwrite to start over"


@dataclass(frozen=True)
class KeptRecord:
    """Where an image's last record lies, what file it was made of, and whether that failed."""

    place: int
    size: int
    stamp: list[int] | None
    failed: bool


@dataclass(frozen=True)
class Seal:
    """A file at one moment: its length, its checksum, how it was written, and where the journal then ended."""

    size: int
    crc: int
    format: list[Any] | None  # None: it was there before the run and waits to be replaced
    place: int


class TagsJournal:
    """An append-only file of sealed lines, whose records are read back one by one; a ``fresh`` one takes none over."""

    def __init__(self, path: Path, fresh: bool = False):
        self.path = path
        #: what it was begun with; None if there is none yet
        self.settings: dict[str, Any] | None = None
        self.kept: dict[str, KeptRecord] = {}
        #: by the name of the file
        self.seals: dict[str, list[Seal]] = {}
        self._file: FileIO | None = None
        self._end = 0
        if path.is_file() and not fresh:
            self._read()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Start over."""
        self.close()
        self.kept, self.seals = {}, {}
        self.settings = json.loads(json.dumps(settings))
        atomic.write(self.path, line := sealed_line({"format": FORMAT, "settings": self.settings}))
        self._file, self._end = FileIO(self.path, "r+"), len(line)

    def add(self, record: Record, stamp: list[int] | None) -> None:
        """Append an image's record; a later one counts instead of an earlier one."""
        place, size = self._append({"stamp": stamp, **record})
        self.kept[record["image"]] = KeptRecord(place, size, stamp, "error" in record)

    def seal(self, name: str, size: int, crc: int, format: list[Any] | None) -> None:
        """Say what a file will be, before it is put in its place."""
        self._append({"written": size, "of": f"{crc:08x}", "as": format, "file": name})
        self.seals.setdefault(name, []).append(Seal(size, crc, format, self._end))

    def last_seal(self, name: str) -> Seal | None:
        """What is known of a file as it should be now."""
        return self.seals[name][-1] if name in self.seals else None

    def record(self, image: str) -> Record:
        """An image's last record."""
        assert self._file is not None
        kept = self.kept[image]
        self._file.seek(kept.place)
        held = line_content(self._file.read(kept.size) or b"") or {}
        del held["stamp"]
        return held

    def records_after(self, name: str, seal: Seal) -> Iterator[Record]:
        """The records that were added behind a file's seal, up to its next one."""
        with self.path.open("rb") as file:
            file.seek(seal.place)
            for line in read_lines(file):
                held = line.held or {}
                if held.get("file") == name:
                    return
                if held.pop("stamp", ...) is not ...:
                    yield held

    def close(self) -> None:
        """Wait until the disk has it all."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def _append(self, held: Mapping[str, Any]) -> tuple[int, int]:
        assert self._file is not None
        line, place = sealed_line(held), self._end
        self._file.seek(place)
        left = memoryview(line)
        while left:
            left = left[self._file.write(left) :]
        self._end += len(line)
        return place, len(line)

    def _read(self) -> None:
        place = 0
        with self.path.open("rb") as file:
            for line in read_lines(file):
                held = line.held or {}
                if not place:
                    if "format" not in held or "settings" not in held:
                        return  # not ours, or cut off at once: nothing was done then
                    self.settings = held["settings"]
                    if held["format"] != FORMAT:
                        version = self.settings.get("mltta", "another version")
                        said = f"{version}, which this version cannot resume; {OTHERWISE}"
                        raise MlttaError(f"{self.path} is the journal of mltta {said}")
                elif "image" in held:
                    self.kept[held["image"]] = KeptRecord(place, line.size, held["stamp"], "error" in held)
                elif "written" in held:
                    seal = Seal(held["written"], int(held["of"], 16), held["as"], place + line.size)
                    self.seals.setdefault(held["file"], []).append(seal)
                if not line.cut_off:
                    place += line.size
        self._file, self._end = FileIO(self.path, "r+"), place
        self._file.truncate(place)  # what a kill has cut off
