"""The format of journals: JSON lines with checksums, which distinguish damage from a truncated end."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from mltta.errors import MlttaError
from mltta.storage.reading import UNREADABLE

#: bytes of the longest line that is read
MOST_LINE = 32 << 20
_SEAL = re.compile(rb', "crc32": "([0-9a-f]{8})"\}\n$')


@dataclass(frozen=True)
class SealedLine:
    """A line on disk: its content, or None if it is damaged or truncated."""

    held: dict[str, Any] | None
    size: int
    #: a kill truncates the last line or the data it refers to; anything else is damage
    cut_off: bool = False


def sealed_line(held: Mapping[str, Any], beside: bytes = b"") -> bytes:
    """Return plain data as a line with checksum; non-ASCII is escaped, so that paths that are not UTF-8 are preserved.

    Args:
        beside: bytes in another file that the checksum also covers.
    """
    said = json.dumps(held).encode()[:-1]
    return said + b', "crc32": "%08x"}\n' % zlib.crc32(beside, zlib.crc32(said))


def line_content(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line without verifying its checksum; None if it is not a JSON object."""
    try:
        held = json.loads(line)
        held.pop("crc32", None)
    except UNREADABLE:
        return None
    return dict(held)


def read_lines(
    file: IO[bytes], beside: Callable[[dict[str, Any]], bytes | None] | None = None
) -> Iterator[SealedLine]:
    """Yield the remaining lines of a journal; the last one may be truncated.

    Args:
        beside: reads the bytes in another file that a line's checksum covers; None if they are missing.
    """
    while line := file.readline(MOST_LINE):
        if len(line) == MOST_LINE:
            said = f"a line has more than {MOST_LINE:,} bytes, which mltta never writes; remove the file"
            raise MlttaError(f"{file.name}: {said}")
        held = line_content(line) if line.endswith(b"\n") else None
        more = b"" if beside is None or held is None else beside(held)
        if more is None or not line.endswith(b"\n"):
            yield SealedLine(None, len(line), cut_off=True)
            return
        seal = _SEAL.search(line)
        if seal is None or zlib.crc32(more, zlib.crc32(line[: seal.start()])) != int(seal[1], 16):
            held = None
        yield SealedLine(held, len(line))
