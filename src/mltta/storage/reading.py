"""Text and JSON out of files that may be anything: looked at first, never more than a budget, errors that name them."""

from __future__ import annotations

import csv
import json
import os
import re
import reprlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mltta.errors import MlttaError

#: bytes; more than anybody writes by hand, or than the largest published file of its kind
SETTINGS, LABELS, ANNOTATIONS = 1 << 20, 64 << 20, 8 << 30
#: what parsers raise when they are fed with something else
UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError),
    *(RecursionError, MemoryError, EOFError, csv.Error),
)


def unwritable(text: str) -> str:
    """What is in a text that cannot be written anywhere: a control character, or what is no character of Unicode.

    >>> [unwritable(text) for text in ("Hängebrücke 🌉", "dog\\x07", "\\ud800")]
    ['', 'a control character (U+0007)', 'half a surrogate pair (U+D800)']
    """
    if not (found := _UNWRITABLE.search(text)):
        return ""
    code = ord(found[0])
    kind = "a code point that is no character" if code > 0xDFFF else "half a surrogate pair"
    return f"{kind if code > 0x9F else 'a control character'} (U+{code:04X})"


_LAST_TWO = "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
_UNWRITABLE = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_LAST_TWO}]")


@contextmanager
def reading(where: str | os.PathLike[str], error: type[MlttaError], todo: str) -> Iterator[None]:
    """Turn whatever parsing a damaged file raises into one error that names the file and says what to do."""
    try:
        yield
    except MlttaError:
        raise
    except UNREADABLE as found:
        raise error(f"{os.fspath(where)} is damaged or something else ({explain(found)}): {todo}") from found


def explain(found: BaseException) -> str:
    """What a parser has to say, in a line."""
    if isinstance(found, (RecursionError, MemoryError)):
        deep = isinstance(found, RecursionError)
        return "nested too deeply" if deep else "too large for the memory there is"
    if isinstance(found, KeyError):
        return f"no {found.args[0]!r}" if found.args else "a part is missing"
    said = next((line.strip() for line in str(found).splitlines() if line.strip()), type(found).__name__)
    return "a number of thousands of digits" if "integer string conversion" in said else shorten(said)


def shorten(text: object, at_most: int = 200) -> str:
    """The beginning of a text, which is enough for a message."""
    said = text if isinstance(text, str) else shown(text)
    return said if len(said) <= at_most else said[:at_most] + "…"


def shown(value: object) -> str:
    """A value as a message shows it; a huge or a deep one is never written out."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = 200
    try:
        return brief.repr(value)
    except ValueError:
        return "a number of thousands of digits"


def look(path: Path, budget: int, error: type[MlttaError]) -> int:
    """The size of an ordinary file within its budget; FileNotFoundError and OSError are left to the caller."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise error(f"{path} is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path} is not an ordinary file; save it to disk first")
    if found.st_size > budget:
        raise error(f"{path} is too large to be read: {found.st_size:,} bytes, and the limit is {budget:,}")
    return found.st_size


def read_bytes(path: Path, budget: int, error: type[MlttaError]) -> bytes:
    """A file's content, no more than the budget even if it grows; OSError is left to the caller."""
    look(path, budget, error)
    with path.open("rb") as file:
        content = file.read(budget + 1)
    if len(content) > budget:
        raise error(f"{path} is too large to be read: the limit is {budget:,} bytes")
    return content


def read_text(path: Path, budget: int, error: type[MlttaError]) -> str:
    """A UTF-8 file's text, with or without a byte order mark, its lines ending in \\n; other errors as they come."""
    content = read_bytes(path, budget, error).decode("utf-8-sig")
    return content.replace("\r\n", "\n").replace("\r", "\n") if "\r" in content else content


def parse_json(content: str | bytes, where: str | Path, error: type[MlttaError], todo: str) -> Any:
    """Parse JSON, however deep, long or wrong it is."""
    with reading(where, error, todo):
        return json.loads(content)
