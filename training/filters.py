"""Which pictures are not photos to learn from: cheap rules, tuned by eye on fourteen sources.

Drawings in color, watermarks across a picture and most collages are not recognized.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 256  # pictures are examined at this size
SHORTEST = 96  # pixels of the short side
LONGEST = 3.0  # long side by short side
WHITE = 0.25  # a picture with so much white is a product photo, also without colors

Planes = NDArray[np.uint8]  # (3, height, width): reducing over contiguous rows is far faster than over colors


def fault(image: Image.Image, full: tuple[int, int] | None = None) -> str | None:
    """What is wrong with a picture, or None.

    Args:
        image: the picture, possibly decoded at a reduced size.
        full: its size in the file.
    """
    width, height = full or image.size
    if min(width, height) < SHORTEST:
        return "tiny"
    if max(width, height) > LONGEST * min(width, height):
        return "elongated"
    if image.mode in ("RGBA", "LA", "PA") and image.getchannel("A").getextrema()[0] != 255:
        return "transparent"
    if image.mode == "P":
        return "palette"
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE), Image.Resampling.BOX, reducing_gap=None)
    planes: Planes = np.stack([np.asarray(band) for band in small.split()])
    red, green, blue = planes
    low, high = (f(f(red, green), blue) for f in (np.minimum, np.maximum))
    white = float((low >= 240).mean())
    colorless = float((high - low > 3).mean()) <= 0.02
    if colorless and white < WHITE:
        return "grey"
    if colorless and edges(planes) >= 0.1:
        return "line drawing"
    if max(float(plane.std(dtype=np.float32)) for plane in planes) < 6:
        return "blank"
    if banner(planes):
        return "banner"
    if white < WHITE and (gutter(planes) or gutter(np.ascontiguousarray(planes.transpose(0, 2, 1)))):
        return "collage"
    return None


def edges(planes: Planes) -> float:
    """Share of the pixels at a sharp edge."""
    pixels = planes.astype(np.int16)
    right = np.abs(np.diff(pixels, axis=2)).max(0)[:-1]
    below = np.abs(np.diff(pixels, axis=1)).max(0)[:, :-1]
    return float((np.maximum(right, below) >= 64).mean())


def banner(planes: Planes) -> bool:
    """Whether a white or black strip with text ends the picture, as the name of a stock agency does.

    If the picture also begins with white or black, it has a frame or was taken on such a ground.
    """
    grey = planes.sum(0, dtype=np.int16) / np.float32(3)
    height, (dark, light) = len(grey), _plain(grey[:2])
    jumps = (np.abs(np.diff(grey, axis=0)) > 24).mean(1) > 0.85
    for rows in range(max(2, round(0.03 * height)), round(0.16 * height)):
        if not jumps[height - rows - 1]:
            continue
        strip = grey[height - rows + 1 :]  # without the blurred edge
        black, white = _plain(strip)
        plain = (black > 0.7 and dark < 0.7) or (white > 0.7 and light < 0.7)
        if plain and strip[:, 4:-4].std() > 8:
            return True
    return False


def _plain(rows: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Shares of black and of white pixels."""
    return float((rows < 40).mean()), float((rows > 225).mean())


def gutter(planes: Planes) -> bool:
    """Whether a thin white line divides the picture from left to right, with much on both sides."""
    values = planes.astype(np.float32)
    means = values.mean(2)
    squares = np.einsum("chw,chw->ch", values, values) / values.shape[2]
    spread, mean = np.sqrt(np.maximum(squares - means**2, 0)).max(0), means.mean(0)
    line = (spread < 6) & (mean > 235)
    n = len(line)
    turns = np.flatnonzero(np.diff(np.r_[False, line, False].astype(int)))
    for start, end in zip(turns[::2], turns[1::2], strict=True):
        thin = end - start <= max(2, 0.05 * n)
        inside = start > 0.12 * n and end < 0.88 * n
        if thin and inside and min(spread[start - 3], spread[end + 2]) > 45:
            return True
    return False
