"""Tags on the terminal or through a pipe: written immediately, not stored."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from mltta.errors import ConfigError
from mltta.output.exchange import coco_text
from mltta.output.formats import Page, Record, TextFormat, csv_lines, refuse_wide, table_lines, text_format


class Screen:
    """Standard output, a device or a named pipe; has the interface of ``Output``.

    JSON and COCO are one document per run, completed at its end, with --watch at Ctrl-C.
    """

    def __init__(self, format: str, path: Path | None = None, *, wide: bool = False):
        if format in ("parquet", "html", "fiftyone"):
            raise ConfigError(f"{format} needs a file: give one with -o")
        if wide:
            refuse_wide([format])
        self.paths, self.format, self._wide = [] if path is None else [path], format, wide
        self._text = text_format(format, wide)
        self._seen: dict[str, list[int] | None] = {}
        self._kept: list[Record] = []
        self._labels: Sequence[str] | None = None

    def __enter__(self) -> Screen:
        self._file: TextIO = sys.stdout
        if self.paths:
            self._file = self.paths[0].open("w", encoding="utf-8", newline="", errors="backslashreplace")
        if self.format == "table":
            self._file = getattr(self._file, "styled", self._file)  # its parts are escaped
            self._text = _table_for(self._file)
        elif self.format.startswith("csv"):
            raw = self.format == "csv-raw"
            self._text = csv_lines(self._wide, end="\r\n" if self.paths else "\n", raw=raw)
        return self

    def begin(self, settings: Mapping[str, Any], labels: Sequence[str]) -> None:
        self._labels = labels
        if self._text is not None:
            self._say(self._text.head)

    def done(self, image: str, stamp: list[int] | None) -> bool:
        """Whether an image was shown in this run and its file has not changed."""
        return image in self._seen and self._seen[image] == stamp

    def grow(self, sources: Sequence[str]) -> None:
        """Do nothing: there is no earlier output."""

    def add(self, record: Record, stamp: list[int] | None) -> None:
        if self._text is None:
            self._kept.append(record)
        else:
            self._say((self._text.between if self._seen else "") + self._text.entry(record))
        self._seen[record["image"]] = stamp

    def finish(self, sources: Sequence[str], interrupted: bool = False) -> None:
        """Do nothing: the end is written on exit, as --watch may add more."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._labels is not None:
                page = Page(Path(), len(self._kept), self._labels)
                self._say(coco_text(self._kept, page) if self._text is None else self._text.tail)
        finally:
            if self.paths:
                self._file.close()

    def _say(self, text: str) -> None:
        """Write a text, escaping characters that the stream cannot encode."""
        if text:
            try:
                self._file.write(text)
            except UnicodeEncodeError:
                encoding = self._file.encoding or "ascii"
                self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._file.flush()


def _table_for(stream: TextIO) -> TextFormat:
    """Return a table format for a stream: its width, styles, and a bar character it can encode."""
    bar, width, styled = "#", 100, False
    with suppress(UnicodeEncodeError, LookupError):
        "█".encode(getattr(stream, "encoding", None) or "utf-8")
        bar = "█"
    with suppress(OSError, ValueError):
        if stream.isatty():  # the old Windows console does not support styles
            takes_marks = sys.platform != "win32" or "WT_SESSION" in os.environ
            styled = takes_marks and os.environ.get("TERM") != "dumb"
            width = os.get_terminal_size(stream.fileno()).columns
    return table_lines(bar, max(40, width), styled)
