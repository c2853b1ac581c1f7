"""The segments before the image data of a JPEG: some are replaced, everything else is preserved byte for byte."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from mltta.output.keywords.iptc import PHOTOSHOP

XMP = b"http://ns.adobe.com/xap/1.0/\0"
_APP0, _APP1, _APP2, _APP13, _SOS = 0xE0, 0xE1, 0xE2, 0xED, 0xDA
_MARKERS = {XMP: _APP1, PHOTOSHOP: _APP13}
_MOST = 65_533
#: header of a segment that extends the XMP, and its length with checksum, size and position
_EXTENSION, _PART = b"http://ns.adobe.com/xmp/extension/\0", 75
_EXIF = b"Exif\0\0"
#: how a maker note begins in either byte order
_MAKER_NOTE = {"<": b"\x7c\x92\x07\0", ">": b"\x92\x7c\0\x07"}


@dataclass
class Jpeg:
    """A parsed JPEG file: segments (marker, payload), and the rest starting at the first scan."""

    segments: list[tuple[int, bytes]]
    rest: bytes

    @classmethod
    def of(cls, content: bytes) -> Jpeg:
        """Parse a file; raises ValueError if it is not a valid JPEG."""
        if content[:2] != b"\xff\xd8":
            raise ValueError("it is not a JPEG")
        at = 2
        segments: list[tuple[int, bytes]] = []
        while content[at : at + 1] == b"\xff" and at + 4 <= len(content):
            marker, end = content[at + 1], at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")
            if marker == _SOS:
                return cls(segments, content[at:])
            alone = marker in (0xFF, 0x00, 0x01) or 0xD0 <= marker <= 0xD9  # markers without a segment
            if alone or end < at + 4 or end > len(content):
                break
            segments.append((marker, content[at + 4 : end]))
            at = end
        raise ValueError("it is damaged or an unusual kind of JPEG")

    @property
    def offsets(self) -> str:
        """Why no byte may move: further pictures that are located by their offset; empty if there are none."""
        if any(marker == _APP2 and payload.startswith(b"MPF\0") for marker, payload in self.segments):
            return "it contains further pictures"
        at = 2
        for marker, payload in self.segments:
            if (
                marker == _APP1
                and payload.startswith(_EXIF)
                and self._located(payload[len(_EXIF) :], at + 10)
            ):
                return "its EXIF data locates a preview after the image"
            at += 4 + len(payload)
        return ""

    def _located(self, exif: bytes, base: int) -> bool:
        """Whether EXIF data at a position of the file contains the offset of a picture after the image.

        Offsets in maker notes may count from anywhere, so any picture is taken to be located by them.
        """
        order = "<" if exif[:2] == b"II" else ">"
        start = len(self.content()) - len(self.rest)
        for found in re.finditer(rb"\xff\xd8\xff", self.rest):
            place = start + found.start()
            if _MAKER_NOTE[order] in exif or any(
                struct.pack(f"{order}I", place - zero) in exif for zero in (base, 0)
            ):
                return True
        return False

    def content(self) -> bytes:
        """Return the bytes of the file."""
        parts = (bytes([0xFF, kind]) + (len(own) + 2).to_bytes(2, "big") + own for kind, own in self.segments)
        return b"".join([b"\xff\xd8", *parts, self.rest])

    def notes(self, head: bytes) -> bytes | None:
        """Return what follows ``XMP`` or ``PHOTOSHOP``; None if missing."""
        found = [own for kind, own in self.segments if kind == _MARKERS[head] and own.startswith(head)]
        more = b"".join(own[_PART:] for _, own in self.segments if own.startswith(_EXTENSION))
        if head == XMP and re.search(rb":(subject|hierarchicalSubject|TagsList)\b", more):
            raise ValueError("its keywords are in an extension of its XMP")
        if len(found) > 1:
            raise ValueError("its metadata is split over several segments")
        return found[0][len(head) :] if found else None

    def put(self, head: bytes, content: bytes | None) -> None:
        """Replace metadata in place; new metadata goes after the segments that must come first."""
        if content is not None and len(head) + len(content) > _MOST:
            raise ValueError("its metadata is too long for one segment")
        if content == self.notes(head):
            return
        marker = _MARKERS[head]
        old = [i for i, (kind, own) in enumerate(self.segments) if kind == marker and own.startswith(head)]
        later = [i for i, (kind, _) in enumerate(self.segments) if kind not in (_APP0, _APP1)]
        at = (old or later or [len(self.segments)])[0]
        self.segments[at : at + len(old)] = [] if content is None else [(marker, head + content)]
