"""Search for photos in files and folders; supported formats, and advice for unsupported ones.

Formats are listed explicitly, so that untrusted files never reach decoders that run other programs, such as EPS.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import features

from mltta.errors import ImageError

_PLAIN = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
_HEIF = frozenset({".heic", ".heif", ".hif"})
#: file extensions of photos, whether or not their decoder is installed
SUFFIXES = _HEIF.union([".jpg", ".jpeg", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif"])
_RAW = ".3fr .arw .cr2 .cr3 .dng .erf .iiq .mrw .nef .nrw .orf .pef .raf .raw .rw2 .sr2 .srf .srw .x3f"
_OTHERS = ".ai .eps .exr .hdr .heics .j2k .jp2 .jpf .jxl .jxr .psb .psd .svg .svgz .tga .wdp .xcf"
KINDS = "JPEG, PNG, GIF, WebP, BMP, TIFF, AVIF or HEIC"
INSTALL_HEIF = "install mltta[heif]"

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class Found:
    """Result of a search: photos, and the number of unsupported files by extension."""

    images: list[Path]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def reasons(self) -> dict[str, str]:
        """Advice on skipped files, by extension."""
        return {suffix: why_unreadable(suffix) or "" for suffix in sorted(self.skipped)}

    def __str__(self) -> str:
        """Return a message about skipped files; empty if there are none.

        Example:
            >>> str(Found([], Counter({".cr2": 2, ".psd": 1})))
            '3 files skipped (2 .cr2: camera raw, export it as JPEG; 1 .psd: convert it to JPEG or PNG)'
        """
        if not self.skipped:
            return ""
        total = self.skipped.total()
        counts = {suffix: f"{n:,} " if len(self.skipped) > 1 else "" for suffix, n in self.skipped.items()}
        parts = "; ".join(f"{counts[suffix]}{suffix}: {reason}" for suffix, reason in self.reasons.items())
        return f"{total:,} file{'s' if total > 1 else ''} skipped ({parts})"


def search_images(paths: Paths) -> Found:
    """Search for photos in ``paths``: files as given, folders recursively and sorted."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    found = Found([])
    for path in map(Path, given):
        if path.is_dir():
            for file in sorted(_walk(path)):
                if why_unreadable(suffix := file.suffix.lower()) is None:
                    found.images.append(file)
                else:
                    found.skipped[suffix] += 1
        elif path.exists():
            found.images.append(path)
        else:
            raise no_such(path)
    return found


def no_such(path: str | os.PathLike[str]) -> ImageError:
    """Return the error for a missing path."""
    return ImageError(f"{path}: no such file or folder; check the spelling of the path")


def find_images(paths: Paths) -> list[Path]:
    """List the photos in ``paths``."""
    return search_images(paths).images


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every file in a folder that looks like a photo, recursively, skipping hidden ones."""

    def refuse(error: OSError) -> None:
        raise ImageError(f"{error.filename}: folder cannot be read: {error.strerror}") from None

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            suffix = Path(name).suffix.lower()
            if not name.startswith(".") and (suffix in SUFFIXES or why_unreadable(suffix) is not None):
                yield Path(root, name)


def is_url(source: object) -> bool:
    """Whether a source is a web URL rather than a file.

    Example:
        >>> is_url("https://example.org/cat.jpg"), is_url("cat.jpg"), is_url(b"https://")
        (True, False, False)
    """
    return isinstance(source, str) and source.lower().startswith(("http://", "https://"))


def formats_of(head: bytes, name: str) -> tuple[str, ...]:
    """Return the Pillow formats that may decode a file with these first bytes."""
    if head[4:8] != b"ftyp":
        return _PLAIN
    avif, heif = ("AVIF",) * reads_avif(), ("HEIF",) * reads_heif()
    if not heif and head[8:12] not in (b"avif", b"avis"):
        raise ImageError(f"{name}: HEIC photos need a decoder: pip install 'mltta[heif]'")
    if heif:
        _register_heif()
    if not avif and not heif:
        raise ImageError(f"{name}: this Pillow does not support AVIF; upgrade it, or convert to JPEG")
    return avif + heif


def why_unreadable(suffix: str) -> str | None:
    """Return advice for a file extension in lower case; None if it is supported or not a photo."""
    if suffix in _HEIF:
        return None if reads_heif() else INSTALL_HEIF
    if suffix == ".avif":
        return None if reads_avif() or reads_heif() else "upgrade Pillow"
    if suffix in _RAW.split():
        return "camera raw, export it as JPEG"
    return "convert it to JPEG or PNG" if suffix in _OTHERS.split() else None


def reads_avif() -> bool:
    """Whether Pillow was built with AVIF support."""
    return bool(features.check("avif"))


@lru_cache(maxsize=1)
def reads_heif() -> bool:
    """Whether the extra mltta[heif] is installed."""
    return find_spec("pillow_heif") is not None


@lru_cache(maxsize=1)
def _register_heif() -> None:
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
