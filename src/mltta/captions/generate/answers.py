"""The file of a run: a first line that says what was asked of whom, then one line an answer, as they came.

A line counts once it is whole: whatever a kill cuts off, the answers before it are there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mltta.errors import CaptionError
from mltta.storage import atomic
from mltta.storage.reading import UNREADABLE

FORMAT = "mltta-generated-1"
REPEATED = "repeated"


@dataclass(frozen=True)
class Entry:
    """One answer: the sentence in it, and why it was not kept, if it was not."""

    n: int
    keywords: tuple[str, ...]
    caption: str
    why: str = ""
    tokens: tuple[int, int] = (0, 0)  # of the question, of the answer

    @property
    def kept(self) -> bool:
        return not self.why


class AnswerFile:
    """Answers on disk by number, and the way to add to them."""

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        """Open a file to go on with, or begin one; refuse one that was begun otherwise."""
        self.path = Path(path)
        self._header = {"format": FORMAT, **identity}
        self.entries: dict[int, Entry] = {}
        try:
            if self.path.exists() and self.path.stat().st_size:
                with self.path.open("rb") as file:
                    header, self.entries, whole = _read(file, self.path)
                self._check(header)
                os.truncate(self.path, whole)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._replace([])
            self._file = self.path.open("ab")
        except OSError as error:
            raise self._unwritable(error) from error

    def add(self, entry: Entry) -> None:
        """Append an answer; when this returns, a kill of the process cannot lose it."""
        try:
            self._file.write(_line(_record(entry)))
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error
        self.entries[entry.n] = entry

    def close(self) -> None:
        with contextlib.suppress(OSError):  # said when it was written
            self._file.close()

    def finish(self) -> None:
        """Put the answers in order and mark the repeated ones, so that the same run always ends in the same file."""
        self.entries = {entry.n: entry for entry in resolved(self.entries.values())}
        try:
            self._replace(self.entries.values())
        except OSError as error:
            raise self._unwritable(error) from error

    def _replace(self, entries: Iterable[Entry]) -> None:
        lines = [_line(self._header), *(_line(_record(entry)) for entry in entries)]
        atomic.write(self.path, b"".join(lines))

    def _check(self, header: Mapping[str, Any]) -> None:
        """Refuse to mix answers to different questions."""
        for name in {**header, **self._header}:
            was, now = header.get(name), self._header.get(name)
            if was != now:
                values = "" if name == "labels" else f" ({was!r}, now {now!r})"
                raise CaptionError(
                    f"{self.path} was begun with another {name}{values}. Give the same options to go on with it, "
                    "or write to another file."
                )

    def _unwritable(self, error: OSError) -> CaptionError:
        return CaptionError(f"{self.path} cannot be written: {error.strerror}")


def resolved(entries: Iterable[Entry]) -> list[Entry]:
    """Answers in order of their numbers, of equal captions only the first one kept."""
    seen: set[str] = set()
    ordered = []
    for entry in sorted(entries, key=lambda entry: entry.n):
        key = same(entry.caption)
        ordered.append(replace(entry, why=REPEATED) if entry.kept and key in seen else entry)
        if entry.kept:
            seen.add(key)
    return ordered


def same(caption: str) -> str:
    """What equal captions have in common."""
    return caption.casefold().rstrip(".! ")


def is_generated(content: str) -> bool:
    """Tell a run's file from other JSON Lines by its first line."""
    return content.startswith(f'{{"format": "{FORMAT}"')


def kept_in(content: bytes, path: str | Path) -> list[str]:
    """The captions that a run kept, finished or not, out of what its file holds."""
    entries = _read(content.splitlines(keepends=True), Path(path))[1]
    return [entry.caption for entry in resolved(entries.values()) if entry.kept]


def _read(lines: Iterable[bytes], path: Path) -> tuple[dict[str, Any], dict[int, Entry], int]:
    """First line, answers, and bytes up to where a kill cut off the last one."""
    header: dict[str, Any] | None = None
    entries: dict[int, Entry] = {}
    whole = 0
    for number, line in enumerate(lines, start=1):
        if header is None:
            header = _parsed_header(line, path)
        elif line.endswith(b"\n"):
            entry = _parsed(line, number, path)
            entries.setdefault(entry.n, entry)
        else:
            break
        whole += len(line)
    if header is None:
        raise CaptionError(f"{path} is empty, so it holds no generated captions")
    return header, entries, whole


def _parsed_header(line: bytes, path: Path) -> dict[str, Any]:
    try:
        held = json.loads(line)
        if held["format"] == FORMAT and line.endswith(b"\n"):
            return dict(held)
    except UNREADABLE:
        pass
    raise CaptionError(f"{path} is not a file that `mltta captions generate` wrote")


def _parsed(line: bytes, number: int, path: Path) -> Entry:
    try:
        held = json.loads(line)
        prompt, answer = map(int, held["tokens"])
        why = "" if held["kept"] else str(held["why"])
        return Entry(int(held["n"]), tuple(held["keywords"]), str(held["caption"]), why, (prompt, answer))
    except UNREADABLE as error:
        raise CaptionError(f"{path}: line {number} is no answer. Remove that line and try again.") from error


def _record(entry: Entry) -> dict[str, Any]:
    held = {"n": entry.n, "keywords": entry.keywords, "caption": entry.caption, "kept": entry.kept}
    return {**held, **({} if entry.kept else {"why": entry.why}), "tokens": entry.tokens}


def _line(held: Mapping[str, Any]) -> bytes:
    # half a surrogate pair, which an endpoint may send escaped, is no UTF-8: it stays escaped
    return (json.dumps(held, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
