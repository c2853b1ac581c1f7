"""Write labels to photos and remove them: atomically, keeping file times and all other metadata.

Sidecar files are named photo.jpg.xmp, as in digiKam and darktable. Adobe's photo.xmp would be shared by photo.jpg and
photo.png, and Lightroom ignores it for JPEGs. For Lightroom, Photos and Explorer, embed the keywords.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from mltta.errors import MlttaError
from mltta.output.keywords.iptc import PHOTOSHOP, Resources
from mltta.output.keywords.jpeg import XMP, Jpeg
from mltta.output.keywords.xmp import Packet, merged
from mltta.storage import atomic

#: maximum size of a sidecar file in bytes, more than any program writes
_MOST = 64 << 20


def sidecar_of(photo: Path) -> Path:
    return photo.with_name(f"{photo.name}.xmp")


def write_sidecar(photo: Path, labels: Sequence[str], dry: bool = False) -> bool:
    """Write the labels as keywords to the sidecar of a photo; return whether anything changed."""
    file = sidecar_of(photo)
    before = _read(file) if file.exists() else None
    packet = Packet(before, str(file))
    had = packet.subjects, packet.ours()
    packet.set(labels)
    if (packet.subjects, packet.ours()) == had:
        return False
    if not dry and packet.empty:
        file.unlink(missing_ok=True)
    elif not dry:
        _put(file, packet.sidecar(), keep=None)
    return True


def embed(photo: Path, labels: Sequence[str], dry: bool = False) -> bool:
    """Write the labels as XMP and IPTC keywords to a JPEG; return whether anything changed.

    The image data and all other segments are preserved byte for byte.
    """
    content = _read(photo)
    try:
        jpeg = Jpeg.of(content)
        packet, resources = Packet(jpeg.notes(XMP), str(photo)), Resources(jpeg.notes(PHOTOSHOP))
        had = packet.subjects, packet.ours(), resources.keywords
        packet.set(labels)
        short = [label for label in labels if resources.fits(label)]
        kept, ours = merged(resources.keywords, packet.ours("iptc"), short)
        resources.put(kept)
        packet.remember("iptc", ours)
        if (packet.subjects, packet.ours(), resources.keywords) == had:
            return False
        if jpeg.several:
            said = "it contains further pictures, which would become unreadable; use --keywords sidecar"
            raise ValueError(said)
        jpeg.put(PHOTOSHOP, resources.content())
        jpeg.put(XMP, None if packet.empty else packet.packet())
    except ValueError as error:
        raise MlttaError(f"{photo}: keywords cannot be embedded: {error}") from None
    if not dry:
        _put(photo, jpeg.content(), keep=photo)
    return True


def undo(photo: Path, dry: bool = False) -> list[str]:
    """Remove our keywords from a photo and its sidecar; return them."""
    found: list[str] = []
    beside = sidecar_of(photo)
    if beside.is_file():
        found += Packet(_read(beside), str(beside)).ours()
        write_sidecar(photo, (), dry)
    if is_jpeg(photo):
        try:
            packet = Packet(Jpeg.of(_read(photo)).notes(XMP), str(photo))
        except ValueError:
            return found  # not a JPEG that we could have written to
        if packet.ours() or packet.ours("iptc"):
            found += packet.ours()
            embed(photo, (), dry)
    return list(dict.fromkeys(found))


def is_jpeg(photo: Path) -> bool:
    return photo.suffix.lower() in (".jpg", ".jpeg", ".jfif", ".jpe")


def _read(file: Path) -> bytes:
    try:
        if file.suffix.lower() == ".xmp" and file.stat().st_size > _MOST:
            raise MlttaError(f"{file} is too large for a sidecar file; repair or remove it")
        return file.read_bytes()
    except OSError as error:
        raise MlttaError(f"{file} cannot be read: {error.strerror}") from error


def _put(file: Path, content: bytes, keep: Path | None) -> None:
    """Write a file atomically; copy times and permissions of ``keep``."""
    with atomic.writing(file), atomic.replacing(file) as part:
        part.write_bytes(content)
        if keep is not None:
            shutil.copystat(keep, part)
            found = os.stat(keep)
            os.utime(part, ns=(found.st_atime_ns, found.st_mtime_ns))
