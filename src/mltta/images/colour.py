"""Colour management: photos in Display P3, Adobe RGB or CMYK are converted to sRGB with their embedded profile.

The rendering intent is relative colorimetric, as in browsers. sRGB, grey and damaged profiles change no pixels.
"""

from __future__ import annotations

import io
import logging
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

log = logging.getLogger("mltta")
#: printer profiles have up to 3 MB
MOST_BYTES = 8 << 20
#: a profile that changes no colour by more levels than this counts as sRGB
SAME = 2
_SPACES = {"RGB": "RGB", "RGBA": "RGB", "CMYK": "CMYK"}


def to_srgb(image: Image.Image) -> Image.Image:
    """Return the image in sRGB; the image itself if no conversion is needed."""
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
    changed.info.pop("icc_profile", None)  # otherwise a second reading would convert again
    return changed


@lru_cache(maxsize=32)  # photos in a folder come from few cameras
def _change(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the conversion of a profile to sRGB; None if it is the identity or unknown."""
    if len(profile) > MOST_BYTES:
        log.debug("ignored a colour profile of %d bytes", len(profile))
        return None
    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if given.profile.xcolor_space.strip() != _SPACES[mode]:
            log.debug("ignored a colour profile for another colour space")
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
    except Exception as error:  # damaged profiles raise almost anything, but the image is usable
        log.debug("ignored a damaged colour profile: %s", error)
        return None
