"""Limits per image, checked before decoding: bytes on disk, pixels, side length, memory and work.

Decoders cannot be interrupted, so time and memory are limited by what the file headers announce. Decoding the largest
accepted image takes a few seconds and less than 2 GB, including PyTorch.
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
#: JPEG panoramas have at most 65,500
MAX_SIDE = 100_000
MAX_BYTES = 512 << 20
#: WebP files are held in memory twice, AVIF and HEIC once
MAX_WEBP_BYTES = 128 << 20
#: memory limit of decoding, and bytes per pixel
MAX_MEMORY = 1_050_000_000
_WEBP_BYTES_A_PIXEL, _VIDEO_BYTES_A_PIXEL = 20, 16
_CONVERTED_BYTES_A_PIXEL, _BYTES_A_PIXEL, _COEFFICIENT_BYTES = 9, 4, 2
#: every scan of a JPEG visits all pixels, in about 3 ms per million; encoders write about ten scans
MAX_SCANS, MAX_SCANNED = 500, 1_500_000_000
#: limits on chunks, segments, blocks and strips, which Pillow visits one by one
MAX_PIECES, MAX_STRIPS, MAX_EXIF = 100_000, 300_000, 64
#: a JPEG marker between coded pixels; excludes stuffed bytes and restarts
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def open_file(name: str) -> tuple[IO[bytes], int]:
    """Open a regular file within the size limit and return its size; refuse others before reading."""
    try:
        _look(os.stat(name), name)
        handle = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        file = os.fdopen(handle, "rb")
        size = _look(os.fstat(file.fileno()), name)  # again, as it may have been replaced meanwhile
    except FileNotFoundError:
        raise ImageError(f"{name}: no such file; check the spelling of the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid path"
        raise ImageError(f"{name}: cannot be opened: {reason}") from None
    return file, size


def _look(found: os.stat_result, name: str) -> int:
    if stat.S_ISDIR(found.st_mode):
        raise ImageError(f"{name}: a folder, not an image; give the files inside it")
    if not stat.S_ISREG(found.st_mode):
        raise ImageError(f"{name}: not a regular file; save the image to disk first")
    check_bytes(found.st_size, name)
    return found.st_size


def check_bytes(size: int, name: str) -> None:
    """Refuse an encoded image with more bytes than any photo."""
    if size > MAX_BYTES:
        raise _beyond(name, f"its file of {size:,} bytes", f"{MAX_BYTES:,} bytes")


def check_encoded(file: IO[bytes], size: int, name: str) -> None:
    """Refuse an encoded image with more parts than any encoder writes, before Pillow visits them."""
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
        pass  # truncated: the decoder reports it
    file.seek(0)


def check_size(wide: int, tall: int, name: str) -> None:
    """Refuse an image with no pixels, too many pixels, or a too long side."""
    if wide * tall == 0:
        raise ImageError(f"{name}: has no pixels")
    if wide * tall > MAX_PIXELS:
        raise too_large(name, f"{wide}x{tall}")
    if max(wide, tall) > MAX_SIDE:
        raise _beyond(name, f"{wide}x{tall}", f"{MAX_SIDE:,} pixels per side")


def check_header(image: Image.Image, file: IO[bytes], name: str) -> None:
    """Refuse an encoded image whose header exceeds a limit."""
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
            raise _beyond(name, f"{wide}x{tall} in {scans:,} scans", "what can be decoded in seconds")
        bytes_a_pixel += _COEFFICIENT_BYTES * _samples(image) if scans > 1 else 0
    elif image.mode not in ("1", "L", "P", "RGB") or "transparency" in image.info:
        bytes_a_pixel = _CONVERTED_BYTES_A_PIXEL
    if pixels * bytes_a_pixel > MAX_MEMORY:
        most = f"{MAX_MEMORY / bytes_a_pixel / 1e6:.0f} megapixels for {image.format} of this kind"
        raise _beyond(name, f"{wide}x{tall}", most)


def too_large(name: str, what: str) -> ImageError:
    """Return the error for an image with too many pixels."""
    return _beyond(name, what, f"{MAX_PIXELS / 1e6:g} megapixels")


def _beyond(name: str, what: str, limit: str) -> ImageError:
    return ImageError(f"{name}: too large, {what} is over the limit of {limit}; make it smaller first")


def _check_pieces(pieces: Iterator[object], name: str) -> None:
    for number, _ in enumerate(pieces, start=1):
        if number > MAX_PIECES:
            raise _beyond(name, f"a file in more than {MAX_PIECES:,} pieces", "what encoders write")


def _check_jpeg(file: IO[bytes], name: str) -> None:
    """Check the segments before the image data; Pillow joins several EXIF segments by repeated copying."""
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
            raise _beyond(name, f"a file with {number:,} segments before the image", "what encoders write")
        file.seek(length - 2 - (4 if mark == b"\xe1" else 0), os.SEEK_CUR)


def _png_chunks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(8)
    while len(head := file.read(8)) == 8:
        yield head
        file.seek(struct.unpack(">I", head[:4])[0] + 4, os.SEEK_CUR)


def _boxes(file: IO[bytes]) -> Iterator[int]:
    """Yield the top-level boxes of an AVIF or HEIC file."""
    file.seek(0)
    while len(head := file.read(8)) == 8:
        (length,) = struct.unpack(">I", head[:4])
        skip = struct.unpack(">Q", file.read(8))[0] - 16 if length == 1 else length - 8
        yield length
        if length == 0 or not 0 <= skip < MAX_BYTES:
            return
        file.seek(skip, os.SEEK_CUR)


def _gif_blocks(file: IO[bytes]) -> Iterator[int]:
    """Yield the blocks before the first frame and their sub-blocks."""
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
    """Check the number of strips or tiles in the first directory; each is an object in Pillow."""
    order = "<" if head[:2] == b"II" else ">"
    big = b"+" in head[:4]
    file.seek(0)
    file.seek(struct.unpack(order + ("8xQ" if big else "4xI"), file.read(16 if big else 8))[0])
    (entries,) = struct.unpack(order + ("Q" if big else "H"), file.read(8 if big else 2))
    for _ in range(min(entries, 65536)):
        form = order + ("HHQ8x" if big else "HHI4x")
        tag, kind, count = struct.unpack(form, file.read(20 if big else 12))
        if count > MAX_STRIPS and kind not in (1, 2, 6, 7):  # bytes and text are read as one value
            raise _beyond(name, f"a file with {count:,} values for tag {tag}", f"{MAX_STRIPS:,} strips")


def _samples(image: Image.Image) -> float:
    """Return the samples per pixel stored for a JPEG with several scans, fewer if chroma is subsampled."""
    factors = [(wide, tall) for _, wide, tall, _ in getattr(image, "layer", [])] or [(1, 1)]
    whole = max(wide for wide, _ in factors) * max(tall for _, tall in factors)
    return float(sum(wide * tall for wide, tall in factors) / max(1, whole))


def _scans(file: IO[bytes]) -> int:
    """Count the scans of a JPEG up to the end of the image.

    Scans of previews in segments and of a video after the image do not count.
    """
    before = file.tell()
    file.seek(0)
    data, at, scans = file.read(MAX_BYTES), 2, 0
    file.seek(before)
    while (mark := _MARKER.search(data, at)) and mark[0] != b"\xff\xd9" and scans <= 10 * MAX_SCANS:
        scans += mark[0] == b"\xff\xda"
        at = mark.end() + max(2, int.from_bytes(data[mark.end() : mark.end() + 2], "big"))
    return scans
