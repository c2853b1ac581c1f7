"""Colours as they were meant: photos in Display P3, Adobe RGB or CMYK become sRGB by the profile that is in the file.

Relative to white, as browsers show them. A profile that means sRGB, one of grey and a damaged one change no pixel.
"""

from __future__ import annotations

import io
import logging
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

log = logging.getLogger("mltta")
#: printers' profiles have up to three megabytes
MOST_BYTES = 8 << 20
#: a profile that moves no colour by more levels than this means sRGB
SAME = 2
_SPACES = {"RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}


def to_srgb(image: Image.Image) -> Image.Image:
    """The same picture in sRGB, or the image itself where its profile says nothing else."""
    profile = image.info.get("icc_profile")
    if not profile or not isinstance(profile, bytes):
        return image
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    if image.mode not in _SPACES or "transparency" in image.info:
        return image
    change = _change(profile, image.mode)
    if change is None:
        return image
    changed = change.apply(image)
    changed.info.pop("icc_profile", None)  # or a second reading would be told twice
    return changed


@lru_cache(maxsize=32)  # a folder of photos comes from few cameras
def _change(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """From a profile's colours to sRGB; None where these are the same, or nobody knows."""
    if len(profile) > MOST_BYTES:
        log.debug("a colour profile of %d bytes is ignored", len(profile))
        return None
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if given.profile.xcolor_space.strip() != _SPACES[mode]:
            log.debug("a colour profile of another kind of pixels is ignored")
            return None
        shown = "RGB" if mode == "CMYK" else mode
        intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
        change = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), mode, shown, intent)
        if mode != "CMYK":
            levels = np.linspace(0, 255, 9).round().astype(np.uint8)
            cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(27, 27, 3)
            before = Image.fromarray(cube).convert(mode)
            apart = np.asarray(before, np.int16) - np.asarray(change.apply(before), np.int16)
            if np.abs(apart).max() <= SAME:
                return None
        return change
    except Exception as error:  # a damaged profile raises almost anything, and the picture is good
        log.debug("a damaged colour profile is ignored: %s", error)
        return None
