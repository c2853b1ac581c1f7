"""Which kinds of photos can be read here, and what is to be done about those that cannot.

Kinds are named one by one, so that a stranger's file never reaches a decoder that runs other programs, as EPS does.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

from PIL import features

from mltta.errors import ImageError

_PLAIN = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
_HEIF = frozenset({".heic", ".heif", ".hif"})
#: the suffixes of photos, whether or not they can be read here
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif", *_HEIF}
)
_RAW = ".3fr .arw .cr2 .cr3 .dng .erf .iiq .mrw .nef .nrw .orf .pef .raf .raw .rw2 .sr2 .srf .srw .x3f"
_OTHERS = ".ai .eps .exr .hdr .heics .j2k .jp2 .jpf .jxl .jxr .psb .psd .svg .svgz .tga .wdp .xcf"
KINDS = "JPEG, PNG, GIF, WebP, BMP, TIFF, AVIF or HEIC"
INSTALL_HEIF = "install mltta[heif]"


def formats_of(head: bytes, name: str) -> tuple[str, ...]:
    """The decoders, by Pillow's names, that a file with these first bytes may be given to."""
    if head[4:8] != b"ftyp":
        return _PLAIN
    avif, heif = ("AVIF",) * reads_avif(), ("HEIF",) * reads_heif()
    if not heif and head[8:12] not in (b"avif", b"avis"):
        raise ImageError(f"{name}: a HEIC photo needs a decoder: pip install 'mltta[heif]'")
    if heif:
        _register_heif()
    if not avif and not heif:
        raise ImageError(f"{name}: this Pillow reads no AVIF; upgrade it, or convert the photo to JPEG")
    return avif + heif


def why_unreadable(suffix: str) -> str | None:
    """What to do about a file of this suffix, in lower case, if it looks like a photo that cannot be read here."""
    if suffix in _HEIF:
        return None if reads_heif() else INSTALL_HEIF
    if suffix == ".avif":
        return None if reads_avif() or reads_heif() else "upgrade Pillow"
    if suffix in _RAW.split():
        return "a camera's raw file, export it as JPEG"
    return "convert it to JPEG or PNG" if suffix in _OTHERS.split() else None


def reads_avif() -> bool:
    """Whether Pillow was built with a decoder of AVIF."""
    return bool(features.check("avif"))


@lru_cache(maxsize=1)
def reads_heif() -> bool:
    """Whether the extra mltta[heif] is installed."""
    return find_spec("pillow_heif") is not None


@lru_cache(maxsize=1)
def _register_heif() -> None:
    from pillow_heif import register_heif_opener

    register_heif_opener(thumbnails=False)
