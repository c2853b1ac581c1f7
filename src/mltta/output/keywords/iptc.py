"""IPTC keywords, which older programs read: datasets 2:25 in the Photoshop resources of a JPEG."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence

PHOTOSHOP = b"Photoshop 3.0\0"
#: resources with the IPTC data and its checksum
_IPTC, _DIGEST = 0x0404, 0x0425
_KEYWORD, _CHARSET, _UTF8 = (2, 25), (1, 90), b"\x1b%G"
#: maximum length of a keyword in bytes, by the standard
MOST = 64


class Resources:
    """Photoshop resources; everything except keywords is preserved."""

    def __init__(self, content: bytes | None):
        """Parse what follows ``PHOTOSHOP``, None if missing; raises ValueError if it is damaged."""
        self._blocks = list(_blocks(content or b""))
        iptc = next((data for number, _, data in self._blocks if number == _IPTC), b"")
        self._sets = list(_datasets(iptc))

    @property
    def keywords(self) -> list[str]:
        return [_text(data, self._utf8) for key, data in self._sets if key == _KEYWORD]

    @property
    def _utf8(self) -> bool:
        return any(key == _CHARSET and data == _UTF8 for key, data in self._sets)

    def fits(self, label: str) -> bool:
        """Whether a keyword is short enough and fits the encoding of the existing data."""
        if not self._utf8 and any(key[0] == 2 and not data.isascii() for key, data in self._sets):
            return label.isascii() and len(label) <= MOST
        return len(label.encode()) <= MOST

    def put(self, keywords: Sequence[str]) -> None:
        """Set exactly these keywords; existing ones keep their bytes."""
        left, kept = list(keywords), []
        for key, data in self._sets:
            if key == _KEYWORD:
                if (word := _text(data, self._utf8)) not in left:
                    continue
                left.remove(word)
            kept.append((key, data))
        if not all(word.isascii() for word in left) and not any(key == _CHARSET for key, _ in kept):
            kept.insert(0, (_CHARSET, _UTF8))
        if left and not any(key == (2, 0) for key, _ in kept):
            kept.append(((2, 0), b"\0\4"))  # the version, required at the start of record 2
        kept += [(_KEYWORD, word.encode()) for word in left]
        if all(key in ((2, 0), _CHARSET) for key, _ in kept):
            kept = []  # no content is left
        # records in order, the version of each first
        self._sets = sorted(kept, key=lambda own: (own[0][0], own[0][1] != 0))

    def content(self) -> bytes | None:
        """Return the bytes that follow ``PHOTOSHOP``; None if nothing is left."""
        iptc = b"".join(_dataset(key, data) for key, data in self._sets)
        new = {_IPTC: iptc, _DIGEST: hashlib.md5(iptc, usedforsecurity=False).digest()}
        blocks = [(number, name, new.get(number, data)) for number, name, data in self._blocks]
        if not iptc:
            blocks = [block for block in blocks if block[0] not in new]
        elif not any(number == _IPTC for number, _, _ in blocks):
            blocks.append((_IPTC, b"\0\0", iptc))
        return b"".join(_block(*one) for one in blocks) or None


def _blocks(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield number, name and data of each resource."""
    at = 0
    while at < len(content):
        if content[at : at + 4] != b"8BIM" or at + 7 > len(content):
            raise ValueError("its Photoshop resources have an unknown format")
        (number,) = struct.unpack_from(">H", content, at + 4)
        start = at + 6 + 2 * (content[at + 6] // 2 + 1) + 4
        name = content[at + 6 : start - 4]
        (size,) = struct.unpack_from(">I", content, start - 4) if start <= len(content) else (1 << 31,)
        if start + size > len(content):
            raise ValueError("its Photoshop resources are truncated")
        yield number, name, content[start : start + size]
        at = start + size + size % 2


def _block(number: int, name: bytes, data: bytes) -> bytes:
    head = struct.pack(">4sH", b"8BIM", number) + name + struct.pack(">I", len(data))
    return head + data + b"\0" * (len(data) % 2)


def _datasets(iptc: bytes) -> Iterator[tuple[tuple[int, int], bytes]]:
    at = 0
    while at + 5 <= len(iptc) and iptc[at] == 0x1C:
        size, start = int.from_bytes(iptc[at + 3 : at + 5], "big"), at + 5
        if size & 0x8000:  # the length of the size
            start += size & 0x7FFF
            size = int.from_bytes(iptc[at + 5 : start], "big")
        if start + size > len(iptc):
            break
        yield (iptc[at + 1], iptc[at + 2]), iptc[start : start + size]
        at = start + size
    if iptc[at:].strip(b"\0"):
        raise ValueError("its IPTC data is damaged")


def _dataset(key: tuple[int, int], data: bytes) -> bytes:
    size = struct.pack(">H", len(data)) if len(data) < 0x8000 else b"\x80\x04" + struct.pack(">I", len(data))
    return b"\x1c" + bytes(key) + size + data


def _text(data: bytes, utf8: bool) -> str:
    try:
        return data.decode("utf-8" if utf8 else "ascii")
    except UnicodeDecodeError:
        return data.decode("latin-1")
