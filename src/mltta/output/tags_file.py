"""Resumable files of tags: backed by a journal, replaced atomically, never overwriting other files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from mltta.errors import ConfigError, MlttaError
from mltta.output.exchange import write_tags
from mltta.output.formats import WIDE, Page, Record, file_of, refuse_wide, text_format
from mltta.output.tags_journal import OTHERWISE, Seal, TagsJournal
from mltta.storage.atomic import replacing, writing
from mltta.storage.lock import locked
from mltta.storage.reading import shorten


class TagsFile:
    """One output file in one format."""

    def __init__(self, path: Path, format: str, wide: bool, journal: TagsJournal):
        self.path, self.format, self.wide, self.journal = path, format, wide and format in WIDE, journal
        self.text = text_format(format, self.wide)
        self._growing: IO[bytes] | None = None

    @property
    def waits(self) -> bool:
        """Whether the existing file is one that --overwrite will replace."""
        seal = self.journal.last_seal(self.path.name)
        return seal is not None and seal.format is None and self.path.is_file()

    def wait(self) -> None:
        """Record the existing file as one that may be replaced."""
        if self.path.is_file() and self.path.stat().st_size:
            self.journal.seal(self.path.name, *_measure(self.path, [])[-1], None)

    def write(self, order: Sequence[str], labels: Sequence[str]) -> None:
        """Replace the file atomically, after recording it in the journal."""
        self.close()
        records = (self.journal.record(image) for image in order)
        synonyms = (self.journal.settings or {}).get("synonyms", ())
        with writing(self.path), replacing(self.path) as part:
            write_tags(part, self.format, records, Page(self.path, len(order), labels, self.wide, synonyms))
            size, crc = _measure(part, [])[-1]
            last, how = self.journal.last_seal(self.path.name), [self.format, self.wide]
            if last is None or (last.size, last.crc, last.format) != (size, crc, how):
                self.journal.seal(self.path.name, size, crc, how)

    def grow(self, order: Sequence[str], labels: Sequence[str]) -> None:
        """Write what is done, if the format allows appending."""
        if self.text is not None and self.text.grows and not self.waits:
            self.write(order, labels)
            with writing(self.path):
                self._growing = self.path.open("ab")

    def add(self, record: Record) -> None:
        if self._growing is not None and self.text is not None:
            with writing(self.path):
                self._growing.write(self.text.entry(record).encode())
                self._growing.flush()

    def close(self) -> None:
        if self._growing is not None:
            self._growing.close()
            self._growing = None

    def refuse_strangers(self) -> None:
        """Refuse an existing file that differs from what the journal recorded."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        seals = self.journal.seals.get(self.path.name)
        if seals is None:
            why = f"{self.journal.path.name} does not list it; {OTHERWISE}"
            raise MlttaError(f"{self.path} exists but has no journal, so it cannot be resumed: {why}")
        length = self.path.stat().st_size
        found = set(_measure(self.path, [seal.size for seal in seals if seal.size <= length]))
        if not any((seal.size, seal.crc) in found and self._grown(seal, length) for seal in reversed(seals)):
            said = f"{self.path} was changed after mltta wrote it; {OTHERWISE}"
            raise MlttaError(said)

    def _grown(self, seal: Seal, length: int) -> bool:
        """Whether the file continues after a seal exactly as the journal does."""
        text = text_format(*seal.format) if seal.format else None
        if seal.size == length or text is None or not text.grows:
            return seal.size == length
        with self.path.open("rb") as file:
            file.seek(seal.size)
            for record in self.journal.records_after(self.path.name, seal):
                want = text.entry(record).encode()
                piece = file.read(len(want))
                if piece != want:
                    return len(piece) < len(want) and want.startswith(piece)
            return not file.read(1)


class Output:
    """Writer of tags to files; a context manager that locks them against other runs.

    Each record is first written to the journal. Files that can grow (CSV, JSON Lines, the table) are valid after every
    image, in the order of tagging; at the end every file is replaced atomically, in the order of the sources. All files
    share one journal, stored beside the first file that already has one, or else beside the first file.
    """

    def __init__(self, outputs: Mapping[Path, str], *, wide: bool = False, overwrite: bool = False):
        """Args:
        outputs: the format of each file.
        wide: one row per image, in formats with rows.
        overwrite: start over; existing files stay until they are replaced.
        """
        if wide:
            refuse_wide(outputs.values())
        self._formats = {file_of(format, path): format for path, format in outputs.items()}
        self._wide, self._overwrite = wide, overwrite
        self._stack = ExitStack()
        self._labels: Sequence[str] = ()
        names = [path.name for path in self._formats]
        if len({*names}) < len(outputs):
            raise ConfigError(f"{max(names, key=names.count)}: give each -o a different file name")

    @property
    def paths(self) -> list[Path]:
        """The files to write."""
        return [*self._formats]

    def __enter__(self) -> Output:
        with ExitStack() as stack:
            for path in self._formats:
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if path.is_dir():
                        raise MlttaError(f"{path} is a folder; give a file with -o")
                    stack.enter_context(locked(journal_of(path, ".lock"), str(path)))
            home = next((path for path in self._formats if journal_of(path).is_file()), self.paths[0])
            with writing(home):
                self.journal = TagsJournal(journal_of(home), self._overwrite)
                stack.callback(self.journal.close)
                self.files = [TagsFile(*one, self._wide, self.journal) for one in self._formats.items()]
                for file in self.files:
                    stack.callback(file.close)
                    if not self._overwrite:
                        file.refuse_strangers()
            self._stack = stack.pop_all()
        return self

    def begin(self, settings: Mapping[str, Any], labels: Sequence[str]) -> None:
        """Resume a run with the same settings, or start one; other settings are refused."""
        self._labels = labels
        if self.journal.settings is not None:
            return refuse_others(self.paths[0], self.journal.settings, settings)
        with writing(self.journal.path):
            self.journal.begin(settings)
            for file in self.files:
                file.wait()

    def done(self, image: str, stamp: list[int] | None) -> bool:
        """Whether an image was tagged and its file has not changed."""
        kept = self.journal.kept.get(image)
        return kept is not None and not kept.failed and kept.stamp == stamp

    def grow(self, sources: Sequence[str]) -> None:
        """Write what is done to the files, so that further records can be appended."""
        order = [image for image in self._ordered(sources) if not self.journal.kept[image].failed]
        for file in self.files:
            file.grow(order, self._labels)

    def add(self, record: Record, stamp: list[int] | None) -> None:
        """Save the record or the error of an image."""
        with writing(self.journal.path):
            self.journal.add(record, stamp)
        for file in self.files:
            file.add(record)

    def finish(self, sources: Sequence[str], interrupted: bool = False) -> None:
        """Rewrite every file; an interrupted run keeps those that --overwrite would replace."""
        for file in self.files:
            if not (interrupted and file.waits):
                file.write(self._ordered(sources), self._labels)

    def _ordered(self, sources: Sequence[str]) -> list[str]:
        """Return all images with a record: first those not among the sources, then the sources in order."""
        kept, asked = self.journal.kept, set(sources)
        return [image for image in kept if image not in asked] + [one for one in sources if one in kept]

    def __exit__(self, *_: object) -> None:
        with writing(self.journal.path):
            self._stack.close()


def journal_of(path: Path, suffix: str = "") -> Path:
    """Return the hidden journal file of an output."""
    return path.with_name(f".{path.name}.mltta{suffix}")


def _measure(path: Path, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return size and checksum of the file up to each size, and of the whole file, in one pass."""
    found, crc, at = [], 0, 0
    with path.open("rb") as file:
        for size in [*sorted(set(sizes)), None]:
            while piece := file.read(1 << 20 if size is None else min(1 << 20, size - at)):
                crc, at = zlib.crc32(piece, crc), at + len(piece)
            found.append((at, crc))
    return found


#: settings that always differ when another one does
_IMPLIES = {"model": ("weights", "arithmetic"), "method": ("settings", "method's file", "views")}
_IMPLIES |= {"labels": ("synonyms", "texts"), "synonyms": ("texts",)}


def refuse_others(path: Path | str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those of an existing output, and name the differences."""
    now = json.loads(json.dumps(now))
    implied = {other for name, own in _IMPLIES.items() if before.get(name) != now.get(name) for other in own}
    some = ({name: held[name] for name in held if name not in implied} for held in (before, now))
    if said := "; ".join(_differences(*some)):
        raise MlttaError(f"{path} was made with other settings: {said}. Use the same ones, or {OTHERWISE}")


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new)
        elif isinstance(old, list) and isinstance(new, list):
            changes = [
                f"{word} {', '.join(shorten(x, 40) for x in some[:3])}{' …' * (len(some) > 3)}"
                for word, held, other in (("without", old, new), ("with", new, old))
                if (some := [x for x in held if x not in other])
            ]
            yield f"{name} differ ({'; '.join(changes) or 'their order'})"
        else:
            was, is_ = ("not given" if value is None else shorten(value, 60) for value in (old, new))
            yield f"{name} was {was}, is now {is_}"
