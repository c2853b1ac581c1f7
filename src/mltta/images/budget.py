"""What one image may cost: bytes on disk, pixels, sides, memory, work. Beyond that it is refused before it is decoded.

A decoder cannot be stopped half-way, so time and memory are bounded by what a file's own headers announce: of the
largest image that passes, decoding takes some seconds and stays below 2 GB, PyTorch included.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from typing import IO

from PIL import Image

from mltta.errors import ImageError

MAX_PIXELS = 120_000_000
#: a panorama has 65,500 at most as JPEG; beyond, an image is a line
MAX_SIDE = 100_000
MAX_BYTES = 512 << 20
#: WebP is read into memory whole, twice; AVIF and HEIC once, and kept
MAX_WEBP_BYTES = 128 << 20
#: bytes that decoding may take, and how many a pixel takes
MAX_MEMORY = 1_050_000_000
_WEBP_BYTES_A_PIXEL, _VIDEO_BYTES_A_PIXEL = 20, 16
_CONVERTED_BYTES_A_PIXEL, _BYTES_A_PIXEL, _COEFFICIENT_BYTES = 9, 4, 2
#: a scan of a JPEG goes through all its pixels again, in about 3 ms a million; encoders make about ten
MAX_SCANS, MAX_SCANNED = 500, 1_500_000_000
#: pieces of a file that Pillow looks at one by one: chunks, segments, blocks, strips
MAX_PIECES, MAX_STRIPS, MAX_EXIF = 100_000, 300_000, 64
#: a marker of a JPEG between stretches of coded pixels; stuffed bytes and restarts are none
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def open_file(name: str) -> tuple[IO[bytes], int]:
    """Open an ordinary file within its budget, and its size; anything else is an error before a byte is read."""
    try:
        _look(os.stat(name), name)
        handle = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        file = os.fdopen(handle, "rb")
        size = _look(os.fstat(file.fileno()), name)  # again, as it may have been exchanged meanwhile
    except FileNotFoundError:
        raise ImageError(f"{name}: no such file; check the spelling of the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a valid path"
        raise ImageError(f"{name}: cannot be opened: {reason}") from None
    return file, size


def _look(found: os.stat_result, name: str) -> int:
    if stat.S_ISDIR(found.st_mode):
        raise ImageError(f"{name}: this is a folder, not an image; give the files inside it")
    if not stat.S_ISREG(found.st_mode):
        raise ImageError(f"{name}: not an ordinary file; save the image to disk first")
    check_bytes(found.st_size, name)
    return found.st_size


def check_bytes(size: int, name: str) -> None:
    """Refuse an encoded image of more bytes than any photo has."""
    if size > MAX_BYTES:
        raise _beyond(name, f"its file of {size:,} bytes", f"{MAX_BYTES:,} bytes")


def check_encoded(file: IO[bytes], size: int, name: str) -> None:
    """Refuse an encoded image in more pieces than any encoder makes, before Pillow goes through them."""
    file.seek(0)
    head = file.read(12)
    try:
        if head[:3] == b"\xff\xd8\xff":
            _check_jpeg(file, name)
        elif head[:8] == b"\x89PNG\r\n\x1a\n":
            _check_pieces(_png_chunks(file), name)
        elif head[:4] == b"GIF8":
            _check_pieces(_gif_blocks(file), name)
        elif head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
            _check_tiff(file, head, name)
        elif size > MAX_WEBP_BYTES and (head[:4] == b"RIFF" or head[4:8] == b"ftyp"):
            kind = "WebP" if head[:4] == b"RIFF" else "its kind"
            raise _beyond(name, f"its file of {size:,} bytes", f"{MAX_WEBP_BYTES:,} bytes for {kind}")
        elif head[4:8] == b"ftyp":
            _check_pieces(_boxes(file), name)
    except (struct.error, IndexError):
        pass  # it ends early: the decoder will say so
    file.seek(0)


def check_size(wide: int, tall: int, name: str) -> None:
    """Refuse an image of no pixels, of too many, or too long in one direction."""
    if wide * tall == 0:
        raise ImageError(f"{name}: has no pixels")
    if wide * tall > MAX_PIXELS:
        raise too_large(name, f"{wide}x{tall}")
    if max(wide, tall) > MAX_SIDE:
        raise _beyond(name, f"{wide}x{tall}", f"{MAX_SIDE:,} pixels a side")


def check_header(image: Image.Image, file: IO[bytes], name: str) -> None:
    """Refuse an encoded image whose header announces more than may be decoded."""
    wide, tall = image.size
    check_size(wide, tall, name)
    pixels = wide * tall
    bytes_a_pixel: float = _BYTES_A_PIXEL
    if image.format == "WEBP":
        bytes_a_pixel = _WEBP_BYTES_A_PIXEL
    elif image.format in ("AVIF", "HEIF"):
        bytes_a_pixel = _VIDEO_BYTES_A_PIXEL
    elif image.format in ("JPEG", "MPO"):
        scans = _scans(file)
        if scans > MAX_SCANS or scans * pixels > MAX_SCANNED:
            raise _beyond(name, f"{wide}x{tall} in {scans:,} scans", "what is decoded in seconds")
        bytes_a_pixel += _COEFFICIENT_BYTES * _samples(image) if scans > 1 else 0
    elif image.mode not in ("1", "L", "P", "RGB") or "transparency" in image.info:
        bytes_a_pixel = _CONVERTED_BYTES_A_PIXEL
    if pixels * bytes_a_pixel > MAX_MEMORY:
        most = f"{MAX_MEMORY / bytes_a_pixel / 1e6:.0f} megapixels for {image.format} of this kind"
        raise _beyond(name, f"{wide}x{tall}", most)


def too_large(name: str, what: str) -> ImageError:
    """The error for an image of too many pixels."""
    return _beyond(name, what, f"{MAX_PIXELS / 1e6:g} megapixels")


def _beyond(name: str, what: str, limit: str) -> ImageError:
    return ImageError(f"{name}: too large, {what} is over the limit of {limit}; make it smaller first")


def _check_pieces(pieces: Iterator[object], name: str) -> None:
    for number, _ in enumerate(pieces, start=1):
        if number > MAX_PIECES:
            raise _beyond(name, f"a file in more than {MAX_PIECES:,} pieces", "what encoders make")


def _check_jpeg(file: IO[bytes], name: str) -> None:
    """The segments before the picture; several of EXIF are put together by copying all that came before."""
    file.seek(2)
    exif = 0
    for number in range(MAX_PIECES):
        mark = file.read(1)
        while mark == b"\xff":
            mark = file.read(1)
        if not mark or mark in (b"\xda", b"\xd9"):
            return
        (length,) = struct.unpack(">H", file.read(2))
        exif += mark == b"\xe1" and file.read(4) == b"Exif"
        if exif > MAX_EXIF or number > MAX_PIECES // 10:
            raise _beyond(name, f"a file with {number:,} segments before the picture", "what encoders make")
        file.seek(length - 2 - (4 if mark == b"\xe1" else 0), os.SEEK_CUR)


def _png_chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(8)
    while len(head := file.read(8)) == 8:
        yield head
        file.seek(struct.unpack(">I", head[:4])[0] + 4, os.SEEK_CUR)


def _boxes(file: IO[bytes]) -> Iterator[int]:
    """The outermost boxes of an AVIF or HEIC file."""
    file.seek(0)
    while len(head := file.read(8)) == 8:
        (length,) = struct.unpack(">I", head[:4])
        skip = struct.unpack(">Q", file.read(8))[0] - 16 if length == 1 else length - 8
        yield length
        if length == 0 or not 0 <= skip < MAX_BYTES:
            return
        file.seek(skip, os.SEEK_CUR)


def _gif_blocks(file: IO[bytes]) -> Iterator[int]:
    """The blocks before the first frame, and the pieces they are in."""
    file.seek(10)
    flags = file.read(3)[0]
    if flags & 128:
        file.seek(3 << ((flags & 7) + 1), os.SEEK_CUR)
    while file.read(1) == b"\x21":
        file.seek(1, os.SEEK_CUR)
        while length := file.read(1)[0]:
            yield length
            file.seek(length, os.SEEK_CUR)
        yield 0


def _check_tiff(file: IO[bytes], head: bytes, name: str) -> None:
    """The strips or tiles that the first directory lists; each is an object to Pillow."""
    order = "<" if head[:2] == b"II" else ">"
    big = b"+" in head[:4]
    file.seek(0)
    file.seek(struct.unpack(order + ("8xQ" if big else "4xI"), file.read(16 if big else 8))[0])
    (entries,) = struct.unpack(order + ("Q" if big else "H"), file.read(8 if big else 2))
    for _ in range(min(entries, 65536)):
        form = order + ("HHQ8x" if big else "HHI4x")
        tag, kind, count = struct.unpack(form, file.read(20 if big else 12))
        if count > MAX_STRIPS and kind not in (1, 2, 6, 7):  # bytes and text are taken as they are
            raise _beyond(name, f"a file with {count:,} values for tag {tag}", f"{MAX_STRIPS:,} strips")


def _samples(image: Image.Image) -> float:
    """Numbers a pixel that a JPEG of several scans keeps: 3 for colours, half of that where they are coarser."""
    factors = [(wide, tall) for _, wide, tall, _ in getattr(image, "layer", [])] or [(1, 1)]
    whole = max(wide for wide, _ in factors) * max(tall for _, tall in factors)
    return float(sum(wide * tall for wide, tall in factors) / max(1, whole))


def _scans(file: IO[bytes]) -> int:
    """How often a JPEG goes through its pixels: its scans up to the end of the picture.

    Those of previews in its segments and of a film behind the picture do not count.
    """
    before = file.tell()
    file.seek(0)
    data, at, scans = file.read(MAX_BYTES), 2, 0
    file.seek(before)
    while (mark := _MARKER.search(data, at)) and mark[0] != b"\xff\xd9" and scans <= 10 * MAX_SCANS:
        scans += mark[0] == b"\xff\xda"
        at = mark.end() + max(2, int.from_bytes(data[mark.end() : mark.end() + 2], "big"))
    return scans
