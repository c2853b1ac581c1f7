"""What is done of an output, kept beside it: the truth that its file is written from, whatever its format.

The first line says what it was begun with; then one line an image, and one for every time the file was written: how
long it then was, and its checksum, so that a file which somebody has changed since is told from ours. Each line ends
with a checksum of its own. A line that a kill has cut off, or that is damaged, is an image not done.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltta.output.records import Record
from mltta.storage import atomic

FORMAT = "mltta-tags-1"
_SEALED = re.compile(rb', "crc32": "([0-9a-f]{8})"\}\n$')


@dataclass(frozen=True)
class Entry:
    """Where an image's last record lies, what file it was made of, and whether that failed."""

    place: int
    size: int
    stamp: list[int] | None
    failed: bool


@dataclass(frozen=True)
class Seal:
    """The output at one moment: its length, its checksum, how it was written, and where the journal then ended."""

    size: int
    crc: int
    format: list[Any]
    place: int


class Journal:
    """An append-only file of lines that carry their checksums; records are read back one by one."""

    def __init__(self, path: Path):
        self.path = path
        #: what it was begun with; None: there is none yet
        self.settings: dict[str, Any] | None = None
        self.entries: dict[str, Entry] = {}
        self.seals: list[Seal] = []
        self._file: int | None = None
        self._end = 0
        if path.is_file():
            self._file = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
            self._read()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Start anew: forget what is there."""
        self.close()
        self.entries, self.seals = {}, []
        self.settings = json.loads(json.dumps(settings))
        line = _line({"format": FORMAT, "settings": self.settings})
        atomic.write(self.path, line)
        self._end = len(line)
        self._file = os.open(self.path, os.O_RDWR | getattr(os, "O_BINARY", 0))

    def add(self, record: Record, stamp: list[int] | None) -> None:
        """Append an image's record; a later one counts instead of an earlier one."""
        place, size = self._append({"stamp": stamp, **record})
        self.entries[record["image"]] = Entry(place, size, stamp, "error" in record)

    def seal(self, size: int, crc: int, format: list[Any]) -> None:
        """Say what the output will be, before it is put in its place."""
        place, length = self._append({"written": size, "of": f"{crc:08x}", "as": format})
        self.seals.append(Seal(size, crc, format, place + length))

    def record(self, image: str) -> Record:
        """An image's last record."""
        entry = self.entries[image]
        return _record(self._at(entry.place, entry.size))

    def records_after(self, seal: Seal) -> Iterator[Record]:
        """The records that were added behind a seal, up to the next one."""
        later = [other.place for other in self.seals if other.place > seal.place]
        for _, line in self._lines(seal.place, min(later, default=self._end)):
            held = _parsed(line)
            if held is not None and "image" in held:
                yield _record(line)

    def close(self) -> None:
        """Wait until the disk has it all."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def _append(self, held: Mapping[str, Any]) -> tuple[int, int]:
        assert self._file is not None
        line = _line(held)
        os.lseek(self._file, self._end, os.SEEK_SET)
        left = memoryview(line)
        while left:
            left = left[os.write(self._file, left) :]
        place, self._end = self._end, self._end + len(line)
        return place, len(line)

    def _at(self, place: int, size: int) -> bytes:
        assert self._file is not None
        os.lseek(self._file, place, os.SEEK_SET)
        found = b""
        while len(found) < size and (piece := os.read(self._file, size - len(found))):
            found += piece
        return found

    def _lines(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Whole lines and where each begins, read a piece at a time."""
        rest, place = b"", start
        while start < end:
            piece = self._at(start, min(1 << 20, end - start))
            if not piece:
                return
            start += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield place, line + b"\n"
                place += len(line) + 1

    def _read(self) -> None:
        assert self._file is not None
        for place, line in self._lines(0, os.fstat(self._file).st_size):
            held = _parsed(line)
            end = place + len(line)
            if place == 0:
                if held is None or held.get("format") != FORMAT:
                    return  # not ours, or cut off at once: nothing was done then
                self.settings = held["settings"]
            elif held is not None and "image" in held:
                self.entries[held["image"]] = Entry(place, len(line), held.get("stamp"), "error" in held)
            elif held is not None and "written" in held:
                self.seals.append(Seal(held["written"], int(held["of"], 16), held["as"], end))
            self._end = end
        os.ftruncate(self._file, self._end)  # what a kill has cut off


def _line(held: Mapping[str, Any]) -> bytes:
    """A line with its checksum; everything but ASCII is escaped, so paths that are not UTF-8 come back whole."""
    said = json.dumps(held).encode()[:-1]
    return said + b', "crc32": "%08x"}\n' % zlib.crc32(said)


def _parsed(line: bytes) -> dict[str, Any] | None:
    found = _SEALED.search(line)
    if found is None or zlib.crc32(line[: found.start()]) != int(found[1], 16):
        return None
    held: dict[str, Any] = json.loads(line)
    return held


def _record(line: bytes) -> Record:
    held: Record = json.loads(line)
    return {name: value for name, value in held.items() if name not in ("stamp", "crc32")}
