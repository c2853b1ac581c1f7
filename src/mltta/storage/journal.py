"""Lines of JSON, each with its checksum: the format of every journal. Damage is told from an end that was cut off."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from mltta.storage.reading import UNREADABLE

_SEAL = re.compile(rb', "crc32": "([0-9a-f]{8})"\}\n$')


@dataclass(frozen=True)
class SealedLine:
    """A line as it lies on disk: what it holds, or None if it is damaged or cut off."""

    held: dict[str, Any] | None
    size: int
    #: a kill cuts off the end of the last line, or of what belongs to it; anything else is damage
    cut_off: bool = False


def sealed_line(held: Mapping[str, Any], beside: bytes = b"") -> bytes:
    """Plain data as a line with its checksum; all but ASCII is escaped, so paths that are not UTF-8 come back whole.

    Args:
        beside: bytes in another file that the checksum covers too.
    """
    said = json.dumps(held).encode()[:-1]
    return said + b', "crc32": "%08x"}\n' % zlib.crc32(beside, zlib.crc32(said))


def line_content(line: bytes) -> dict[str, Any] | None:
    """What a line holds, its checksum taken off and not compared; None if it is not an object in JSON."""
    try:
        held = json.loads(line)
        held.pop("crc32", None)
    except UNREADABLE:
        return None
    return dict(held)


def read_lines(
    file: IO[bytes], beside: Callable[[dict[str, Any]], bytes | None] | None = None
) -> Iterator[SealedLine]:
    """The lines of a journal from where the file stands on; the last one may be cut off.

    Args:
        beside: reads what a line's checksum covers in another file; None if that is not there.
    """
    for line in file:
        held = line_content(line) if line.endswith(b"\n") else None
        more = b"" if beside is None or held is None else beside(held)
        if more is None or not line.endswith(b"\n"):
            yield SealedLine(None, len(line), cut_off=True)
            return
        seal = _SEAL.search(line)
        if seal is None or zlib.crc32(more, zlib.crc32(line[: seal.start()])) != int(seal[1], 16):
            held = None
        yield SealedLine(held, len(line))
