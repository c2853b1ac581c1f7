"""A file of tags that goes on where it stopped: kept by a journal beside it, written whole, never over a stranger's."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from mltta.errors import MlttaError
from mltta.output.formats import file_of, lines_of, whole_of
from mltta.output.journal import Journal, Seal
from mltta.output.lines import Lines
from mltta.output.records import Page, Record
from mltta.storage import atomic
from mltta.storage.lock import locked
from mltta.storage.reading import shorten

OTHERWISE = "give another -o, or --overwrite to start anew"


class Output:
    """Tags on their way into a file; a context manager, whose lock no second run gets.

    A record is in the journal before it is anywhere else. Files that can grow (CSV, JSON Lines, the table) are whole
    after every image, in the order the images came; at the end every file is written anew in the order of the
    sources, in one step.
    """

    def __init__(self, path: Path, format: str, *, wide: bool = False, overwrite: bool = False):
        self.path, self.format, self.wide = file_of(format, path), format, wide
        self.lines = lines_of(format, wide)
        self._overwrite = overwrite
        self._stack = ExitStack()
        self._growing: IO[bytes] | None = None
        self._labels: Sequence[str] = ()

    def __enter__(self) -> Output:
        hidden = self.path.with_name(f".{self.path.name}.mltta")
        with _writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                raise MlttaError(f"{self.path} is a folder; give a file to write the tags to")
            self._stack.enter_context(locked(hidden.with_name(f"{hidden.name}.lock"), str(self.path)))
            self.journal = Journal(hidden)
            try:
                self._refuse_strangers()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def begin(self, settings: Mapping[str, Any], labels: Sequence[str]) -> None:
        """Go on with what was begun with the same settings, or start; other settings are refused."""
        self._labels = labels
        with _writing(self.path):
            if self._overwrite or self.journal.settings is None:
                there = self._there()
                self.journal.begin(settings)
                if there is not None:  # a kill before the first writing leaves a file that may be replaced
                    self.journal.seal(*there, ["anything"])
            else:
                refuse_others(self.path, self.journal.settings, settings)

    def done(self, image: str, stamp: list[int] | None) -> bool:
        """Whether an image was tagged, and is the file that it was then."""
        entry = self.journal.entries.get(image)
        return entry is not None and not entry.failed and entry.stamp == stamp

    def grow(self, order: Sequence[str]) -> None:
        """Put what is done in the file, so that what comes can be added behind it."""
        if self.lines is None or not self.lines.grows:
            return
        self._write([image for image in order if not self.journal.entries[image].failed])
        with _writing(self.path):
            self._growing = self._stack.enter_context(self.path.open("ab"))

    def add(self, record: Record, stamp: list[int] | None) -> None:
        """Keep one image's record, or its error."""
        with _writing(self.path):
            self.journal.add(record, stamp)
            if self._growing is not None and self.lines is not None:
                self._growing.write(self.lines.text(record).encode())
                self._growing.flush()

    def finish(self, order: Sequence[str]) -> None:
        """Write the whole file: what is done of ``order``, behind what was done before of other images."""
        if self._growing is not None:
            self._growing.close()
            self._growing = None
        self._write(order)

    def ordered(self, sources: Sequence[str]) -> list[str]:
        """All images with a record: those that are not among the sources first, then the sources in their order."""
        known, asked = self.journal.entries, set(sources)
        return [image for image in known if image not in asked] + [s for s in sources if s in known]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack, _writing(self.path):
            self.journal.close()

    def _write(self, order: Sequence[str]) -> None:
        """Put the file in its place in one step, and say so in the journal before."""
        records = (self.journal.record(image) for image in order)
        with _writing(self.path), atomic.replacing(self.path) as part:
            if self.lines is not None:
                with part.open("wb") as file:
                    for piece in self.lines.pieces(records):
                        file.write(piece.encode())
            else:
                whole_of(self.format)(part, records, Page(self.path, len(order), self._labels, self.wide))
            size, crc = _measure(part, [])[-1]
            last = self.journal.seals[-1] if self.journal.seals else None
            as_ = [self.format, self.wide]
            if last is None or (last.size, last.crc, last.format) != (size, crc, as_):
                self.journal.seal(size, crc, as_)

    def _refuse_strangers(self) -> None:
        """Refuse a file that is there and is not what the journal says was written."""
        if self._overwrite or not self.path.exists() or not self.path.stat().st_size:
            return
        if self.journal.settings is None:
            raise MlttaError(
                f"{self.path} is there already, and is not one to go on with: {self.journal.path.name}, which would "
                f"say what is done, is not beside it; {OTHERWISE}"
            )
        if not self._ours():
            raise MlttaError(
                f"{self.path} was changed since mltta wrote it, and would lose that; {OTHERWISE}"
            )

    def _ours(self) -> bool:
        """Whether the file is as it was at a seal, with nothing behind but what the journal has behind that seal."""
        length = self.path.stat().st_size
        found = set(_measure(self.path, [seal.size for seal in self.journal.seals if seal.size <= length]))
        return any(
            (seal.size, seal.crc) in found and self._grown(seal, length)
            for seal in reversed(self.journal.seals)
        )

    def _grown(self, seal: Seal, length: int) -> bool:
        if seal.size == length:
            return True
        lines: Lines | None = None if seal.format == ["anything"] else lines_of(*seal.format)
        if lines is None or not lines.grows:
            return False
        with self.path.open("rb") as file:
            file.seek(seal.size)
            for record in self.journal.records_after(seal):
                want = lines.text(record).encode()
                piece = file.read(len(want))
                if len(piece) < len(want):
                    return want.startswith(piece)
                if piece != want:
                    return False
            return not file.read(1)

    def _there(self) -> tuple[int, int] | None:
        return _measure(self.path, [])[-1] if self.path.is_file() else None


def _measure(path: Path, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Checksums of a file's first so many bytes, for each size, and of all of it: one reading."""
    found, crc, at = [], 0, 0
    with path.open("rb") as file:
        for size in [*sorted(set(sizes)), None]:
            while size is None or at < size:
                piece = file.read(1 << 20 if size is None else min(1 << 20, size - at))
                if not piece:
                    break
                crc, at = zlib.crc32(piece, crc), at + len(piece)
            found.append((at, crc))
    return found


def refuse_others(path: Path | str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those a file was begun with, and say in what."""
    now = json.loads(json.dumps(now))
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    for name, implied in _IMPLIES.items():
        if name in names:
            names = [other for other in names if other not in implied]
    if names:
        said = "; ".join(_difference(name, before.get(name), now.get(name)) for name in names)
        raise MlttaError(f"{path} was begun with other settings: {said}. Give the same ones, or {OTHERWISE}")


#: what differs of itself when something else does
_IMPLIES = {
    "model": ("weights", "arithmetic"),
    "method": ("settings", "method's file", "views"),
    "labels": ("synonyms", "texts"),
    "synonyms": ("texts",),
}


def _difference(name: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        inner = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return "; ".join(_difference(key, before.get(key), now.get(key)) for key in inner)
    if isinstance(before, list) and isinstance(now, list):
        gone = [shorten(x, 40) for x in before if x not in now]
        new = [shorten(x, 40) for x in now if x not in before]
        changes = [
            f"{word} {', '.join(some[:3])}{' …' * (len(some) > 3)}"
            for word, some in (("without", gone), ("with", new))
            if some
        ]
        return f"{name} differ ({'; '.join(changes) or 'their order'})"
    return f"{name} was {_said(before)}, is now {_said(now)}"


def _said(value: Any) -> str:
    return "not given" if value is None else shorten(value, 60)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what a disk may say into words for the user."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        where = (
            f" ({os.fspath(error.filename)})" if error.filename and str(error.filename) != str(path) else ""
        )
        raise MlttaError(
            f"{path} cannot be written: {why}{where}; when that is mended, the same command goes on from here"
        ) from error
