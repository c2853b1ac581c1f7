"""The file of a run: a first line that says what was asked of whom, then one line per answer, as they came.

A line counts once it is whole: an interruption costs only the answer that was being written.
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
    """The sentence in one answer, and why it was not kept, if it was not."""

    n: int
    keywords: tuple[str, ...]
    caption: str
    why: str = ""
    tokens: tuple[int, int] = (0, 0)  # of the question, of the answer

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
    """Answers on disk by number, and the way to add to them."""

    def __init__(self, path: str | Path, identity: Mapping[str, Any]) -> None:
        """Open a file to resume, or begin one; refuse one that was begun with other options."""
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
        """Append an answer; when this returns, a kill of the process cannot lose it."""
        with self._written():
            self._file.write(entry.line)
            self._file.flush()
        self.entries[entry.n] = entry

    def close(self) -> None:
        with contextlib.suppress(OSError):  # reported when it was written
            self._file.close()

    def finish(self) -> None:
        """Put the answers in order and mark the repeated ones, so that the same run always ends in the same file."""
        self.entries = {entry.n: entry for entry in resolved(self.entries.values())}
        with self._written():
            lines = [_line(self._header), *(entry.line for entry in self.entries.values())]
            atomic.write(self.path, b"".join(lines))

    def _check(self, header: Mapping[str, Any]) -> None:
        """Refuse to mix answers to different questions."""
        for name in {**header, **self._header}:
            if (was := header.get(name)) != (now := self._header.get(name)):
                values = "" if name == "labels" else f" ({was!r}, now {now!r})"
                raise CaptionError(
                    f"{self.path} was begun with another {name}{values}. Give the same options to resume it, "
                    "or write to another file."
                )

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CaptionError(f"{self.path} cannot be written: {error.strerror}") from error


def resolved(entries: Iterable[Sentence]) -> list[Sentence]:
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
    """The captions that a run kept, finished or not."""
    entries = _read(content.splitlines(keepends=True), Path(path))[1]
    return [entry.caption for entry in resolved(entries.values()) if entry.kept]


def _read(lines: Iterable[bytes], path: Path) -> tuple[dict[str, Any], dict[int, Sentence], int]:
    """First line, answers, and the size of the part before an incomplete last line."""
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
                raise CaptionError(f"{path} is not a file that `mltta captions generate` wrote") from error
            todo = "Remove that line and try again."
            raise CaptionError(f"{path}: line {number} is no answer. {todo}") from error
        whole += len(line)
    return header, entries, whole


def _line(held: Mapping[str, Any]) -> bytes:
    # half a surrogate pair, which an endpoint may send escaped, is no UTF-8: it stays escaped
    return (json.dumps(held, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
