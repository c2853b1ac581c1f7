"""The journal of an output, from which its files are written in any format.

The first line contains the settings. It is followed by one line per image, and one line per written file with its size
and checksum, to detect later changes. A damaged or truncated line means that its image is not done.
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
from mltta.output.records import are_settings, is_record, is_seal, is_stamp
from mltta.storage import atomic
from mltta.storage.journal import line_content, read_lines, sealed_line
from mltta.storage.reading import shorten

FORMAT = "mltta-tags-2"
OTHERWISE = "choose another -o, or use --overwrite to start over"


@dataclass(frozen=True)
class KeptRecord:
    """Position of an image's last record, stamp of its file, and whether it failed."""

    place: int
    size: int
    stamp: list[int] | None
    failed: bool


@dataclass(frozen=True)
class Seal:
    """State of a file: size, checksum, format, and the end of the journal at that time."""

    size: int
    crc: int
    format: list[Any] | None  # None: a file from before the run, to be replaced
    place: int


class TagsJournal:
    """An append-only file of sealed lines; a ``fresh`` journal ignores existing content."""

    def __init__(self, path: Path, fresh: bool = False):
        self.path = path
        #: settings of the run; None if there is no journal yet
        self.settings: dict[str, Any] | None = None
        self.kept: dict[str, KeptRecord] = {}
        #: by file name
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
        atomic.write(
            self.path, line := sealed_line({"format": FORMAT, "settings": self.settings}), follow=False
        )
        self._file, self._end = FileIO(self.path, "r+", opener=atomic.not_followed), len(line)

    def add(self, record: Record, stamp: list[int] | None) -> None:
        """Append an image's record, which replaces an earlier one."""
        place, size = self._append({"stamp": stamp, **record})
        self.kept[record["image"]] = KeptRecord(place, size, stamp, "error" in record)

    def seal(self, name: str, size: int, crc: int, format: list[Any] | None) -> None:
        """Record the state of a file before it is replaced."""
        self._append({"written": size, "of": f"{crc:08x}", "as": format, "file": name})
        self.seals.setdefault(name, []).append(Seal(size, crc, format, self._end))

    def last_seal(self, name: str) -> Seal | None:
        """Return the expected state of a file, if known."""
        return self.seals[name][-1] if name in self.seals else None

    def record(self, image: str) -> Record:
        """Return an image's last record."""
        assert self._file is not None
        kept = self.kept[image]
        self._file.seek(kept.place)
        held = line_content(self._file.read(kept.size) or b"") or {}
        del held["stamp"]
        return held

    def records_after(self, name: str, seal: Seal) -> Iterator[Record]:
        """Yield the records added after a seal of a file, up to its next one."""
        with self.path.open("rb") as file:
            file.seek(seal.place)
            for line in read_lines(file):
                held = line.held or {}
                if held.get("file") == name:
                    return
                if held.pop("stamp", ...) is not ...:
                    yield held

    def close(self) -> None:
        """Sync to disk and close."""
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
        place, labels = 0, None
        with self.path.open("rb") as file:
            for number, line in enumerate(read_lines(file), start=1):
                held = line.held or {}
                if number == 1:
                    if "format" not in held or "settings" not in held:
                        return  # not a journal, or truncated at once: nothing is done
                    if not are_settings(held["settings"]):
                        raise self._wrong(number)
                    self.settings = settings = held["settings"]
                    if held["format"] != FORMAT:
                        version = settings.get("mltta", "another version")
                        said = f"{shorten(version, 60)}, which this version cannot resume; {OTHERWISE}"
                        raise MlttaError(f"{self.path} is the journal of mltta {said}")
                    labels = frozenset(settings["labels"]) if "labels" in settings else None
                elif is_seal(held):
                    seal = Seal(held["written"], int(held["of"], 16), held["as"], place + line.size)
                    self.seals.setdefault(held["file"], []).append(seal)
                elif line.held is not None:
                    stamp = held.pop("stamp", ...)
                    if not (is_stamp(stamp) and is_record(held, labels)):
                        raise self._wrong(number)
                    self.kept[held["image"]] = KeptRecord(place, line.size, stamp, "error" in held)
                if not line.cut_off:
                    place += line.size
        self._file, self._end = FileIO(self.path, "r+", opener=atomic.not_followed), place
        self._file.truncate(place)  # remove a truncated line

    def _wrong(self, number: int) -> MlttaError:
        return MlttaError(f"{self.path}, line {number}: is intact, but not from `mltta tag`; {OTHERWISE}")
