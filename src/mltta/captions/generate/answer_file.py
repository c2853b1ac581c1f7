"""The file of a run: a header with the settings, then one line per answer, as they arrive.

Only complete lines count, so an interruption loses at most the answer being written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mltta.errors import CaptionError
from mltta.storage import atomic
from mltta.storage.reading import UNREADABLE

FORMAT = "mltta-generated-1"
REPEATED = "repeated"


@dataclass(frozen=True)
class Sentence:
    """The sentence in an answer, and the reason if it was rejected."""

    n: int
    keywords: tuple[str, ...]
    caption: str
    why: str = ""
    tokens: tuple[int, int] = (0, 0)  # of the request, of the answer

    @property
    def kept(self) -> bool:
        return not self.why

    @property
    def line(self) -> bytes:
        """Its line in the file."""
        why = {} if self.kept else {"why": self.why}
        held = {"n": self.n, "keywords": self.keywords, "caption": self.caption, "kept": self.kept}
        return _line({**held, **why, "tokens": self.tokens})


class AnswerFile:
    """Answers on disk by number; supports appending."""

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        """Open a file to resume, or create one; refuse a file with other options."""
        self.path = Path(path)
        self._header = {"format": FORMAT, **identity}
        self.entries: dict[int, Sentence] = {}
        with self._written():
            if self.path.exists() and self.path.stat().st_size:
                with self.path.open("rb") as file:
                    header, self.entries, whole = _read(file, self.path)
                self._check(header)
                os.truncate(self.path, whole)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                atomic.write(self.path, _line(self._header))
            self._file = self.path.open("ab")

    def add(self, entry: Sentence) -> None:
        """Append an answer; once this returns, a kill of the process cannot lose it."""
        with self._written():
            self._file.write(entry.line)
            self._file.flush()
        self.entries[entry.n] = entry

    def close(self) -> None:
        with contextlib.suppress(OSError):  # reported on write
            self._file.close()

    def finish(self) -> None:
        """Sort the answers and mark repeated ones, so that the same run always produces the same file."""
        self.entries = {entry.n: entry for entry in resolved(self.entries.values())}
        with self._written():
            lines = [_line(self._header), *(entry.line for entry in self.entries.values())]
            atomic.write(self.path, b"".join(lines))

    def _check(self, header: Mapping[str, Any]) -> None:
        """Refuse to mix answers to different requests."""
        for name in {**header, **self._header}:
            if (was := header.get(name)) != (now := self._header.get(name)):
                values = "" if name == "labels" else f" ({was!r}, now {now!r})"
                raise CaptionError(
                    f"{self.path} was created with another {name}{values}. Use the same options to resume it, "
                    "or write to another file."
                )

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CaptionError(f"{self.path}: cannot be written: {error.strerror}") from error


def resolved(entries: Iterable[Sentence]) -> list[Sentence]:
    """Answers sorted by number; of equal captions only the first is kept."""
    seen: set[str] = set()
    ordered = []
    for entry in sorted(entries, key=lambda entry: entry.n):
        key = same(entry.caption)
        ordered.append(replace(entry, why=REPEATED) if entry.kept and key in seen else entry)
        if entry.kept:
            seen.add(key)
    return ordered


def same(caption: str) -> str:
    """Normalize a caption for comparison."""
    return caption.casefold().rstrip(".! ")


def is_generated(content: str) -> bool:
    """Whether JSON Lines content is a run's file, according to its first line."""
    return content.startswith(f'{{"format": "{FORMAT}"')


def kept_in(content: bytes, path: str | Path) -> list[str]:
    """The captions kept by a run, complete or not."""
    entries = _read(content.splitlines(keepends=True), Path(path))[1]
    return [entry.caption for entry in resolved(entries.values()) if entry.kept]


def _read(lines: Iterable[bytes], path: Path) -> tuple[dict[str, Any], dict[int, Sentence], int]:
    """Read the header, the answers, and the size without an incomplete last line."""
    header: dict[str, Any] = {}
    entries: dict[int, Sentence] = {}
    whole = 0
    for number, line in enumerate(lines, start=1):
        try:
            if number == 1:
                header = dict(json.loads(line))
                if header["format"] != FORMAT or not line.endswith(b"\n"):
                    raise ValueError
            elif not line.endswith(b"\n"):
                break
            else:
                held = json.loads(line)
                n, why = int(held["n"]), "" if held["kept"] else str(held["why"])
                prompt, answer = map(int, held["tokens"])
                said = tuple(held["keywords"]), str(held["caption"]), why, (prompt, answer)
                entries.setdefault(n, Sentence(n, *said))
        except UNREADABLE as error:
            if number == 1:
                raise CaptionError(f"{path} was not written by `mltta captions generate`") from error
            todo = "Remove that line and try again."
            raise CaptionError(f"{path}, line {number}: not a valid answer. {todo}") from error
        whole += len(line)
    return header, entries, whole


def _line(held: Mapping[str, Any]) -> bytes:
    # unpaired surrogates, which an endpoint may send escaped, are not valid UTF-8: keep them escaped
    return (json.dumps(held, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
