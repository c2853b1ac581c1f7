"""The segments in front of a JPEG's image data: some are replaced, everything else stays byte for byte."""

from __future__ import annotations

from dataclasses import dataclass

from mltta.output.keywords.iptc import PHOTOSHOP

XMP = b"http://ns.adobe.com/xap/1.0/\0"
_APP0, _APP1, _APP2, _APP13, _SOS = 0xE0, 0xE1, 0xE2, 0xED, 0xDA
_MARKERS = {XMP: _APP1, PHOTOSHOP: _APP13}
_MOST = 65_533


@dataclass
class Jpeg:
    """A JPEG file taken apart: segments (marker, payload), and the image data from the scan on."""

    segments: list[tuple[int, bytes]]
    rest: bytes

    @classmethod
    def of(cls, content: bytes) -> Jpeg:
        """Take a file apart; ValueError says why it cannot be."""
        if content[:2] != b"\xff\xd8":
            raise ValueError("it is no JPEG")
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
        raise ValueError("it is damaged, or not a JPEG of the usual kind")

    @property
    def several(self) -> bool:
        """Whether other pictures behind the first are found by how far they are from its start, as phones have them."""
        return any(marker == _APP2 and payload.startswith(b"MPF\0") for marker, payload in self.segments)

    def content(self) -> bytes:
        """The file again."""
        parts = (bytes([0xFF, kind]) + (len(own) + 2).to_bytes(2, "big") + own for kind, own in self.segments)
        return b"".join([b"\xff\xd8", *parts, self.rest])

    def notes(self, head: bytes) -> bytes | None:
        """What stands behind ``XMP`` or ``PHOTOSHOP``; None where there is none."""
        found = [own for kind, own in self.segments if kind == _MARKERS[head] and own.startswith(head)]
        if len(found) > 1:
            raise ValueError("its notes are spread over several segments")
        return found[0][len(head) :] if found else None

    def put(self, head: bytes, content: bytes | None) -> None:
        """Replace notes where they stand; new ones go behind the segments that have to be first."""
        if content is not None and len(head) + len(content) > _MOST:
            raise ValueError("its notes are too long for one segment more")
        marker = _MARKERS[head]
        old = [i for i, (kind, own) in enumerate(self.segments) if kind == marker and own.startswith(head)]
        later = [i for i, (kind, _) in enumerate(self.segments) if kind not in (_APP0, _APP1)]
        at = (old or later or [len(self.segments)])[0]
        self.segments[at : at + len(old)] = [] if content is None else [(marker, head + content)]
