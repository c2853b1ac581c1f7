"""Read text and JSON from untrusted files, with size limits and errors that name the file."""

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
from typing import Any, TextIO

from mltta.errors import MlttaError

#: size limits in bytes, above the largest files written by hand or published
SETTINGS, LABELS, ANNOTATIONS = 1 << 20, 64 << 20, 8 << 30
#: errors that parsers raise on invalid input
UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError),
    *(RecursionError, MemoryError, EOFError, csv.Error),
)


def unwritable(text: str) -> str:
    """Describe the first control character or invalid Unicode in a text; empty if there is none.

    >>> [unwritable(text) for text in ("Hängebrücke 🌉", "dog\\x07", "\\ud800")]
    ['', 'a control character (U+0007)', 'half a surrogate pair (U+D800)']
    """
    if not (found := _UNWRITABLE.search(text)):
        return ""
    code = ord(found[0])
    kind = "a code point that is not a character" if code > 0xDFFF else "half a surrogate pair"
    return f"{kind if code > 0x9F else 'a control character'} (U+{code:04X})"


def escaped(text: str) -> str:
    """Show control characters, invalid Unicode and changes of writing direction instead of obeying them."""
    return _DIRECTING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def no_formula(text: str) -> str:
    """Return a text that a spreadsheet does not read as a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


class Escaped:
    """A stream on which texts from files cannot control the terminal; ``styled`` is the stream itself."""

    def __init__(self, stream: TextIO):
        self.styled = stream

    def write(self, text: str) -> int:
        return self.styled.write(escaped(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.styled, name)


#: first characters of what a spreadsheet reads as a formula
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_DIRECTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_LAST_TWO = "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
_UNWRITABLE = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_LAST_TWO}]")


@contextmanager
def reading(where: str | os.PathLike[str], error: type[MlttaError], todo: str) -> Iterator[None]:
    """Convert errors from parsing a file to an error that names the file and says what to do."""
    try:
        yield
    except MlttaError:
        raise
    except UNREADABLE as found:
        raise error(f"{os.fspath(where)} is damaged or malformed ({explain(found)}): {todo}") from found


def explain(found: BaseException) -> str:
    """Return the message of a parser in one line."""
    if isinstance(found, (RecursionError, MemoryError)):
        deep = isinstance(found, RecursionError)
        return "nested too deeply" if deep else "too large for the available memory"
    if isinstance(found, KeyError):
        return f"no {found.args[0]!r}" if found.args else "a part is missing"
    said = next((line.strip() for line in str(found).splitlines() if line.strip()), type(found).__name__)
    return "a number of thousands of digits" if "integer string conversion" in said else shorten(said)


def shorten(text: object, at_most: int = 200) -> str:
    """Return the beginning of a text, for messages."""
    said = text if isinstance(text, str) else shown(text)
    return said if len(said) <= at_most else said[:at_most] + "…"


def shown(value: object) -> str:
    """Format a value for messages, shortened if it is large or deep."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = 200
    try:
        return brief.repr(value)
    except ValueError:
        return "a number of thousands of digits"


def look(path: Path, budget: int, error: type[MlttaError]) -> int:
    """Return the size of a regular file within its limit; FileNotFoundError and OSError are not converted."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise error(f"{path} is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path} is not a regular file; save it to disk first")
    if found.st_size > budget:
        raise error(f"{path} is too large: {found.st_size:,} bytes; the limit is {budget:,}")
    return found.st_size


def read_bytes(path: Path, budget: int, error: type[MlttaError]) -> bytes:
    """Return a file's content within its limit, even if the file grows; OSError is not converted."""
    look(path, budget, error)
    with path.open("rb") as file:
        content = file.read(budget + 1)
    if len(content) > budget:
        raise error(f"{path} is too large: the limit is {budget:,} bytes")
    return content


def read_text(path: Path, budget: int, error: type[MlttaError]) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark, with lines that end in \\n."""
    content = read_bytes(path, budget, error).decode("utf-8-sig")
    return content.replace("\r\n", "\n").replace("\r", "\n") if "\r" in content else content


def parse_json(content: str | bytes, where: str | Path, error: type[MlttaError], todo: str) -> Any:
    """Parse JSON, also if it is deep, large or invalid."""
    with reading(where, error, todo):
        return json.loads(content)
