"""Labels into photos and out of them again: in one step each, the file's time kept, nothing of anybody else's lost.

A sidecar is called photo.jpg.xmp, as digiKam and darktable call it: photo.xmp, Adobe's way, would be one file for
photo.jpg and photo.png, and Lightroom reads none for a JPEG anyway. There, and in Photos and Explorer, embed.
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

#: bytes of a sidecar; more than any program writes
_MOST = 64 << 20


def sidecar_of(photo: Path) -> Path:
    return photo.with_name(f"{photo.name}.xmp")


def write_sidecar(photo: Path, labels: Sequence[str], dry: bool = False) -> bool:
    """Have the labels as keywords beside a photo; whether that changes anything."""
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
    """Have the labels as XMP and IPTC keywords inside a JPEG; whether that changes anything.

    The image data, and all segments but these two, stay byte for byte.
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
            said = "it holds further pictures, which could no longer be found; use --keywords sidecar"
            raise ValueError(said)
        jpeg.put(PHOTOSHOP, resources.content())
        jpeg.put(XMP, None if packet.empty else packet.packet())
    except ValueError as error:
        raise MlttaError(f"{photo}: keywords cannot be embedded: {error}") from None
    if not dry:
        _put(photo, jpeg.content(), keep=photo)
    return True


def undo(photo: Path, dry: bool = False) -> list[str]:
    """Take back what we have added, in the photo and beside it; the keywords that were."""
    found: list[str] = []
    beside = sidecar_of(photo)
    if beside.is_file():
        found += Packet(_read(beside), str(beside)).ours()
        write_sidecar(photo, (), dry)
    if is_jpeg(photo):
        try:
            packet = Packet(Jpeg.of(_read(photo)).notes(XMP), str(photo))
        except ValueError:
            return found  # no JPEG that we could have written to
        if packet.ours() or packet.ours("iptc"):
            found += packet.ours()
            embed(photo, (), dry)
    return list(dict.fromkeys(found))


def is_jpeg(photo: Path) -> bool:
    return photo.suffix.lower() in (".jpg", ".jpeg", ".jfif", ".jpe")


def _read(file: Path) -> bytes:
    try:
        if file.suffix.lower() == ".xmp" and file.stat().st_size > _MOST:
            raise MlttaError(f"{file} is too large for a sidecar; mend or remove it")
        return file.read_bytes()
    except OSError as error:
        raise MlttaError(f"{file} cannot be read: {error.strerror}") from error


def _put(file: Path, content: bytes, keep: Path | None) -> None:
    """Write a file in one step; one that is changed keeps its times and rights."""
    with atomic.writing(file), atomic.replacing(file) as part:
        part.write_bytes(content)
        if keep is not None:
            shutil.copystat(keep, part)
            found = os.stat(keep)
            os.utime(part, ns=(found.st_atime_ns, found.st_mtime_ns))
