"""Write labels to photos and remove them: atomically, keeping the file's owner and times and all other metadata.

Each write starts from the photo as it was before our last one. Sidecar files are named photo.jpg.xmp, as in digiKam and
darktable, or photo.xmp, as in Lightroom.
"""

from __future__ import annotations

import base64
import glob
import os
import shutil
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from mltta.errors import MlttaError
from mltta.output.keywords.iptc import PHOTOSHOP, Resources
from mltta.output.keywords.jpeg import XMP, Jpeg
from mltta.output.keywords.keyword_lists import EMPTY, Lists, additions, paths
from mltta.output.keywords.xmp import PLACES as IN_XMP
from mltta.output.keywords.xmp import Packet, with_undo
from mltta.storage import atomic
from mltta.storage.reading import unwritable

#: how sidecar files are named: photo.jpg.xmp or photo.xmp
Naming = Literal["sidecar", "adobe"]
#: maximum size of a sidecar file in bytes, more than any program writes
_MOST = 64 << 20
#: beginnings and ends of XMP inside photos of any format
_XMPMETA = b"<x:xmpmeta", b"</x:xmpmeta>"
_SIDECAR = "; use --keywords sidecar"


def sidecar_of(photo: Path, naming: Naming = "sidecar") -> Path:
    """Return the sidecar of a photo: an existing one of either name, or the one to create."""
    full, short = photo.with_name(f"{photo.name}.xmp"), photo.with_suffix(".xmp")
    if full.exists() or not (short.exists() or naming == "adobe"):
        return full
    others = [
        own for own in photo.parent.glob(f"{glob.escape(photo.stem)}.*") if own.suffix.lower() != ".xmp"
    ]
    if all(own.name == photo.name for own in others):
        return short
    if naming == "adobe":
        shared = ", ".join(sorted(own.name for own in others))
        raise MlttaError(f"{short}: this sidecar would be shared by {shared}{_SIDECAR}")
    return full


def write_sidecar(
    photo: Path, keywords: Sequence[str], dry: bool = False, naming: Naming = "sidecar"
) -> bool:
    """Write keywords such as "animal|dog" to the sidecar of a photo; return whether anything changed."""
    file = sidecar_of(photo, naming)
    if file.is_symlink() and not file.exists():
        raise MlttaError(f"{file} is a link to a file that does not exist")
    held = _read(file) if file.exists() else None
    before, _ = _before(held, None, str(file))
    after = before
    if keywords:
        after, _ = _after(before, None, keywords, str(file), _embedded(photo))
    if after == held:
        return False
    if not dry and after is None:
        file.unlink(missing_ok=True)
    elif not dry and after is not None:
        _put(file, after)
    return True


def embed(photo: Path, keywords: Sequence[str], dry: bool = False) -> bool:
    """Write keywords such as "animal|dog" as XMP and IPTC to a JPEG; return whether anything changed.

    The image data and all other segments are preserved byte for byte.
    """
    content = _read(photo)
    try:
        jpeg = Jpeg.of(content)
        xmp, resources = _before(jpeg.notes(XMP), jpeg.notes(PHOTOSHOP), str(photo))
        if keywords:
            xmp, resources = _after(xmp, resources, keywords, str(photo))
        if (xmp, resources) == (jpeg.notes(XMP), jpeg.notes(PHOTOSHOP)):
            return False
        if why := jpeg.offsets:
            raise ValueError(f"{why}, which would become unreadable{_SIDECAR}")
        jpeg.put(PHOTOSHOP, resources)
        jpeg.put(XMP, xmp)
    except ValueError as error:
        raise MlttaError(f"{photo}: keywords cannot be embedded: {error}") from None
    if not dry:
        _put(photo, jpeg.content())
    return True


def new_sidecar(keywords: Sequence[str]) -> bytes:
    """Return the sidecar of a photo that has no keywords yet."""
    content, _ = _after(None, None, keywords, "", EMPTY)
    assert content is not None  # there are keywords
    return content


def undo(photo: Path, dry: bool = False) -> list[str]:
    """Remove our keywords from a photo and its sidecar; return them."""
    found: list[str] = []
    beside = sidecar_of(photo)
    if beside.is_file() and (ours := _ours(Packet(_read(beside), str(beside)))):
        found += ours
        write_sidecar(photo, (), dry)
    if is_jpeg(photo):
        try:
            ours = _ours(Packet(Jpeg.of(_read(photo)).notes(XMP), str(photo)))
        except ValueError:
            return found  # not a JPEG that we could have written to
        if ours:
            found += ours
            embed(photo, (), dry)
    return list(dict.fromkeys(found))


def users_keywords(photo: Path) -> list[str]:
    """Return the keywords of a photo and its sidecar that are not ours; those that cannot be read are skipped."""
    found: list[str] = []
    try:
        beside = sidecar_of(photo)
        if beside.is_file():
            found = paths(_lists(Packet(_before(_read(beside), None, "")[0], ""), Resources(None)))
    except MlttaError:
        pass
    return list(dict.fromkeys([*found, *paths(_embedded(photo))]))


def is_jpeg(photo: Path) -> bool:
    return photo.suffix.lower() in (".jpg", ".jpeg", ".jfif", ".jpe")


def _ours(packet: Packet) -> list[str]:
    return packet.ours("hierarchy") or packet.ours("subject") or packet.ours("iptc")


def _before(xmp: bytes | None, resources: bytes | None, where: str) -> tuple[bytes | None, bytes | None]:
    """Return metadata as it was before we wrote: the same bytes, or if they changed since, without our keywords."""
    if xmp is None:
        return xmp, resources
    packet = Packet(xmp, where)
    saved, blank = packet.saved()
    try:
        old, iptc = (_restored(*pair) for pair in zip(saved, (blank, resources or b""), strict=True))
        return old, iptc
    except (ValueError, zlib.error):
        pass
    if ours := packet.ours("iptc"):
        held = Resources(resources)
        held.put([word for word in held.keywords if word not in ours])
        resources = held.content()
    return packet.stripped(), resources


def _after(
    xmp: bytes | None,
    resources: bytes | None,
    keywords: Sequence[str],
    where: str,
    beneath: Lists | None = None,
) -> tuple[bytes | None, bytes | None]:
    """Return metadata with keywords added; ``beneath`` are those of the photo if this is its sidecar, without IPTC."""
    for keyword in keywords:
        if why := unwritable(keyword):
            said = f"{where}: the label {keyword[:40]!r} contains {why}, so no keywords were written"
            raise MlttaError(said)
    packet, iptc = Packet(xmp, where), Resources(resources)
    new, ours = additions(_lists(packet, iptc), keywords, beneath or EMPTY)
    for lists in (new, ours):
        lists["iptc"] = [word for word in lists["iptc"] if beneath is None and iptc.fits(word)]
    if not any(ours.values()):
        return xmp, resources
    if new["iptc"]:
        iptc.put([*iptc.keywords, *new["iptc"]])
    changed, content = packet.added(new, ours), iptc.content() if new["iptc"] else resources
    return with_undo(changed, (_saved(xmp, changed), _saved(resources, content or b""))), content


def _saved(old: bytes | None, new: bytes) -> str:
    """Return a text from which ``_restored`` makes the old bytes, given the new ones."""
    packed = zlib.compressobj(9, zdict=b"\0" + new)
    content = b"" if old is None else b"\1" + old
    return base64.b64encode(packed.compress(content) + packed.flush()).decode()


def _restored(saved: str, new: bytes) -> bytes | None:
    """Return the old bytes; raise ``zlib.error`` if the new ones are not what they were."""
    packed = zlib.decompressobj(zdict=b"\0" + new)
    content = packed.decompress(base64.b64decode(saved), _MOST)
    return content[1:] or None


def _lists(packet: Packet, iptc: Resources) -> Lists:
    return {**{place: packet.items(place) for place in IN_XMP}, "iptc": iptc.keywords}


def _embedded(photo: Path) -> Lists:
    """Return the keywords inside a photo of any format, without ours."""
    try:
        content, resources = _read(photo), None
        if is_jpeg(photo):
            jpeg = Jpeg.of(content)
            xmp, resources = _before(jpeg.notes(XMP), jpeg.notes(PHOTOSHOP), str(photo))
        else:
            start, end = content.find(_XMPMETA[0]), content.find(_XMPMETA[1])
            xmp = content[start : end + len(_XMPMETA[1])] if 0 <= start < end else None
        return _lists(Packet(xmp, str(photo)), Resources(resources))
    except (MlttaError, ValueError):
        return EMPTY


def _read(file: Path) -> bytes:
    try:
        if file.suffix.lower() == ".xmp" and file.stat().st_size > _MOST:
            raise MlttaError(f"{file} is too large for a sidecar file; repair or remove it")
        return file.read_bytes()
    except OSError as error:
        raise MlttaError(f"{file} cannot be read: {error.strerror}") from error


def _put(file: Path, content: bytes) -> None:
    """Write a file atomically; an existing one keeps its owner, permissions, times and extended attributes."""
    file = file.resolve()
    seen = file.stat() if file.exists() else None
    if seen is not None and seen.st_nlink > 1:
        raise MlttaError(f"{file}: it has {seen.st_nlink} hard links, which writing would separate{_SIDECAR}")
    if seen is not None and not seen.st_mode & stat.S_IWUSR:
        raise MlttaError(f"{file}: it is read-only; make it writable, or use --keywords sidecar")
    with atomic.writing(file), atomic.replacing(file) as part:
        part.write_bytes(content)
        if seen is not None:
            _keep(file, seen, part)


def _keep(file: Path, seen: os.stat_result, part: Path) -> None:
    own = part.stat()
    if (own.st_uid, own.st_gid) != (seen.st_uid, seen.st_gid):
        try:
            os.chown(part, seen.st_uid, seen.st_gid)
        except OSError:
            raise MlttaError(f"{file}: it belongs to another user or group{_SIDECAR}") from None
    shutil.copystat(file, part)
    if hasattr(os, "listxattr") and _attributes(file) != _attributes(part):
        raise MlttaError(f"{file}: its extended attributes cannot be kept{_SIDECAR}")
    os.utime(part, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    now = file.stat()
    if (now.st_mtime_ns, now.st_size, now.st_ino) != (seen.st_mtime_ns, seen.st_size, seen.st_ino):
        raise MlttaError(f"{file}: another program changed it at the same time; rerun the command")


def _attributes(file: Path) -> dict[str, bytes]:
    return {name: os.getxattr(file, name) for name in os.listxattr(file)}
