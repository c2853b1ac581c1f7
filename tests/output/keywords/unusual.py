"""Unusual JPEGs: every kind of image data, with every kind of metadata before it and of data after it."""

from __future__ import annotations

import hashlib
import io
import random
import struct
from collections.abc import Callable, Iterator

from PIL import Image

from tests.output.keywords.test_forms import KEPT, REFUSED, spoiled
from tests.output.keywords.test_write import FOREIGN
from tests.safety.world import photo

XMP, EXTENSION = b"http://ns.adobe.com/xap/1.0/\0", b"http://ns.adobe.com/xmp/extension/\0"
RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'


def segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload


def image(kind: str, seed: int) -> bytes:
    """Return a small JPEG of a kind."""
    mode = {"cmyk": "CMYK", "gray": "L"}.get(kind, "RGB")
    options = {
        "progressive": {"progressive": True},
        "restarts": {"restart_marker_blocks": 2},
        "444": {"subsampling": 0},
        "profile": {"icc_profile": b"\0" * 128 + bytes(range(256)) * 300},
    }.get(kind, {})
    out = io.BytesIO()
    photo(seed, (32, 24)).convert(mode).save(out, "JPEG", quality=60 + seed % 30, **options)
    return out.getvalue()


IMAGES = ("baseline", "progressive", "cmyk", "gray", "restarts", "444", "profile")


def exif(order: str = "<", thumbnail: bool = True, maker_note: bool = False) -> bytes:
    """Return EXIF data with a camera name, and a thumbnail inside it."""
    small = image("baseline", 1) if thumbnail else b""
    make = b"Camera\0"
    entries = [(0x010F, 2, len(make), 0), (0x0112, 3, 1, 6 if order == "<" else 6 << 16)]
    if maker_note:
        entries.append((0x927C, 7, 64, 0))
    place = 8 + 2 + 12 * len(entries) + 4
    second = place + len(make) + 1 + 64
    values = {0x010F: place, 0x927C: place + len(make) + 1}
    first = struct.pack(f"{order}H", len(entries)) + b"".join(
        struct.pack(f"{order}HHII", tag, kind, count, values.get(tag, value))
        for tag, kind, count, value in entries
    )
    held = first + struct.pack(f"{order}I", second if small else 0) + make + b"\0" + bytes(64)
    if small:
        at = second + 2 + 24 + 4
        held += struct.pack(f"{order}HHHIIHHIII", 2, 0x0201, 4, 1, at, 0x0202, 4, 1, len(small), 0) + small
    return segment(
        0xE1, b"Exif\0\0" + (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8) + held
    )


def iptc(*words: str, utf8: bool = True, digest: bool = True) -> bytes:
    """Return Photoshop resources with IPTC keywords, a digest and a resource of unknown content."""
    code = b"\x1c\x01\x5a\0\x03\x1b%G" if utf8 else b""
    encoded = [word.encode("utf-8" if utf8 else "latin-1") for word in words]
    held = code + b"".join(b"\x1c\x02\x19" + struct.pack(">H", len(word)) + word for word in encoded)
    held += b"\x1c\x02\x5a\0\x04Rome"
    blocks = [(0x0404, held), (0x03ED, b"\0\x48\0\0\0\1\0\1\0\x48\0\0\0\1\0\1")]
    if digest:
        blocks.insert(0, (0x0425, hashlib.md5(held, usedforsecurity=False).digest()))
    return segment(0xED, b"Photoshop 3.0\0" + b"".join(resource(*one) for one in blocks))


def resource(number: int, data: bytes) -> bytes:
    return struct.pack(">4sHHI", b"8BIM", number, 0, len(data)) + data + b"\0" * (len(data) % 2)


def extended(body: str, main: bytes = FOREIGN) -> bytes:
    """Return XMP with an extension in two segments."""
    rest = f"<rdf:RDF {RDF}><rdf:Description {body}</rdf:Description></rdf:RDF>"
    rest = f'<x:xmpmeta xmlns:x="adobe:ns:meta/">{rest}</x:xmpmeta>'
    held = rest.encode()
    guid = hashlib.md5(held, usedforsecurity=False).hexdigest().upper().encode()
    note = (
        b'rdf:about="" xmlns:xmpNote="http://ns.adobe.com/xmp/note/" xmpNote:HasExtendedXMP="' + guid + b'"'
    )
    first, half = segment(0xE1, XMP + main.replace(b'rdf:about=""', note)), len(held) // 2
    parts = [
        segment(0xE1, EXTENSION + guid + struct.pack(">II", len(held), at) + part)
        for at, part in ((0, held[:half]), (half, held[half:]))
    ]
    return first + b"".join(parts)


BEFORE: dict[str, Callable[[random.Random], bytes]] = {
    "nothing": lambda _: b"",
    "comment": lambda _: segment(0xFE, "a comment ☺".encode()),
    "exif": lambda r: exif(r.choice("<>"), r.random() < 0.7, r.random() < 0.3),
    "xmp": lambda _: segment(0xE1, XMP + FOREIGN),
    "exif and xmp": lambda r: exif(r.choice("<>")) + segment(0xE1, XMP + FOREIGN),
    "iptc": lambda r: iptc("home", "Zoë", digest=r.random() < 0.5),
    "latin-1 iptc": lambda _: iptc("café", utf8=False),
    "everything": lambda r: exif(r.choice("<>")) + segment(0xE1, XMP + FOREIGN) + iptc("family", "home"),
    "xmp last": lambda _: iptc("home") + segment(0xFE, b"x") + segment(0xE1, XMP + FOREIGN),
    "padded xmp": lambda r: segment(
        0xE1, XMP + FOREIGN.replace(b"<?xpacket end", b" " * r.randrange(4000) + b"<?xpacket end")
    ),
    "long xmp": lambda r: segment(0xE1, XMP + long_packet(r)),
    "extended xmp": lambda _: extended(
        f'rdf:about="" xmlns:GImage="http://ns.google.com/photos/1.0/image/"><GImage:Data>{"x" * 3000}</GImage:Data>'
    ),
    "extended keywords": lambda _: extended(
        'rdf:about="" xmlns:lr="http://ns.adobe.com/lightroom/1.0/"><lr:hierarchicalSubject><rdf:Bag><rdf:li>a|b</rdf:li></rdf:Bag></lr:hierarchicalSubject>'
    ),
    "more pictures": lambda _: segment(0xE2, b"MPF\0II*\0\x08\0\0\0" + bytes(40)),
    "damaged resources": lambda _: segment(0xED, b"Photoshop 3.0\0rubbish"),
    "two packets": lambda _: segment(0xE1, XMP + FOREIGN) * 2,
    "fill bytes": lambda _: b"\xff\xff\xff",
    "unknown segments": lambda r: (
        segment(0xEB, b"Maker\0" + r.randbytes(300)) + segment(0xE4, b"") + segment(0xEE, r.randbytes(9))
    ),
    **{
        f"xmp with {name}": (lambda _, text=text: segment(0xE1, XMP + spoiled(text)))
        for name, (text, _) in KEPT.items()
    },
    **{
        f"xmp with {name}": (lambda _, text=text: segment(0xE1, XMP + spoiled(text)))
        for name, text in REFUSED.items()
    },
}
AFTER: dict[str, Callable[[random.Random], bytes]] = {
    "nothing": lambda _: b"",
    "motion photo": lambda r: b"\0\0\0\x18ftypmp42" + r.randbytes(500),
    "trailer": lambda r: r.randbytes(64) + b"SEFH" + struct.pack("<III", 106, 0, 12) + b"SEFT",
    "picture": lambda _: image("gray", 2),
}


def long_packet(r: random.Random) -> bytes:
    noise = r.randbytes(r.randrange(1000, 29_000)).hex().encode()
    return FOREIGN.replace(b"</rdf:Description>", b"<dc:source>" + noise + b"</dc:source></rdf:Description>")


def unusual(number: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of unusual JPEGs, the same on every machine."""
    r = random.Random(36)
    kinds = list(BEFORE)
    for place in range(number):
        kind, before = IMAGES[place % len(IMAGES)], kinds[place % len(kinds)]
        after = r.choice(list(AFTER)) if r.random() < 0.4 else "nothing"
        held = image(kind, place % 7)
        content = held[:2] + BEFORE[before](r) + held[2:] + AFTER[after](r)
        cut = r.random() < 0.1
        if cut:
            content = content[: r.randrange(len(content) // 2, len(content))]
        yield f"{place:03} {kind}, {before}, {after}{', truncated' * cut}.jpg", content


def pixels(content: bytes) -> bytes | str:
    """Return the decoded pixels, or why there are none."""
    try:
        with Image.open(io.BytesIO(content)) as found:
            return found.tobytes()
    except (OSError, SyntaxError) as error:
        return str(error)
