"""Tags on the screen, or through a pipe: written as they come, kept nowhere."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from mltta.errors import ConfigError
from mltta.output.formats import lines_of
from mltta.output.lines import Lines, csv_lines, table_lines
from mltta.output.records import Page, Record


class Screen:
    """The standard output, or a device or a pipe that was named; it takes what an ``Output`` takes."""

    def __init__(self, format: str, path: Path | None = None, *, wide: bool = False):
        if format in ("parquet", "html", "fiftyone"):
            raise ConfigError(f"{format} needs a file: say where with -o")
        self.path, self.format = path, format
        self._lines = lines_of(format, wide)
        self._wide, self._count = wide, 0
        self._seen: dict[str, list[int] | None] = {}
        self._kept: list[Record] = []
        self._labels: Sequence[str] = ()

    def __enter__(self) -> Screen:
        self._file: TextIO = (
            sys.stdout
            if self.path is None
            else self.path.open("w", encoding="utf-8", newline="", errors="backslashreplace")
        )
        if self.format == "table":
            self._lines = _table_for(self._file)
        elif self.format == "csv":
            self._lines = csv_lines(self._wide, end="\n" if self.path is None else "\r\n")
        return self

    def begin(self, settings: Mapping[str, Any], labels: Sequence[str]) -> None:
        self._labels = labels
        if self._lines is not None:
            self._say(self._lines.head)

    def done(self, image: str, stamp: list[int] | None) -> bool:
        """Whether an image was shown in this run, and is the file that it was then."""
        return image in self._seen and self._seen[image] == stamp

    def grow(self, order: Sequence[str]) -> None:
        """Nothing is there yet."""

    def add(self, record: Record, stamp: list[int] | None) -> None:
        self._seen[record["image"]] = stamp
        if self._lines is None:
            self._kept.append(record)
            return
        self._say((self._lines.between if self._count else "") + self._lines.text(record))
        self._count += 1

    def ordered(self, sources: Sequence[str]) -> list[str]:
        return list(self._seen)

    def finish(self, order: Sequence[str]) -> None:
        if self._lines is not None:
            self._say(self._lines.tail)
            return
        from mltta.output.exchange import coco_text

        self._say(coco_text(self._kept, Page(Path(), len(self._kept), self._labels)))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.path is not None:
            self._file.close()

    def _say(self, text: str) -> None:
        """Write what the stream can take of a text, and escape the rest."""
        if not text:
            return
        try:
            self._file.write(text)
        except UnicodeEncodeError:
            encoding = self._file.encoding or "ascii"
            self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._file.flush()


def _table_for(stream: TextIO) -> Lines:
    """The table as a stream can show it: its width, its marks, and bars of a character that it has."""
    try:
        "█".encode(getattr(stream, "encoding", None) or "utf-8")
        bar = "█"
    except (UnicodeEncodeError, LookupError):
        bar = "#"
    width, styled = 100, False
    try:
        takes_marks = (
            sys.platform != "win32" or "WT_SESSION" in os.environ
        )  # Windows' old console shows them as rubbish
        styled = stream.isatty() and takes_marks and os.environ.get("TERM") != "dumb"
        width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 100
    except (OSError, ValueError, io.UnsupportedOperation):
        pass
    return table_lines(bar, max(40, width), styled)
