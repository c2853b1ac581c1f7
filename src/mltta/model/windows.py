"""Local views from a feature map, or from tiles where there is none; for NumPy and torch alike."""

from __future__ import annotations

from collections.abc import Callable

from array_api_compat import array_namespace

from mltta.arrays import Array, mean_windows, normalize
from mltta.images.specs import LocalSpec

#: unnormalized features (N, h, w, D), or (N, D), of images (N, 3, S, S)
Forward = Callable[[Array], Array]


def look_locally(spec: LocalSpec, local: Forward | None, encode: Forward, side: int, pixels: Array) -> Array:
    """The whole, its quarters and windows (N, 5 + L, D), unnormalized, of inputs (N, 3, S, S).

    Args:
        local: reads the tower's locations; None uses tiles instead.
        encode: returns features of tiles, which are ``side`` pixels wide.
    """
    xp = array_namespace(pixels)
    if local is not None:
        cells = local(pixels)  # (N, h, w, D)
        step = spec.size / cells.shape[1]
        sides = max(1, round(spec.window / step)), max(1, round(spec.stride / step))
        return xp.concat([parts(cells), windows(cells, *sides)], axis=1)
    cut = tiles(pixels, side)  # (N, n, n, 3, side, side)
    features = encode(xp.reshape(cut, (-1, *cut.shape[3:])))
    cells = xp.reshape(normalize(xp.astype(features, xp.float32)), (*cut.shape[:3], -1))
    return xp.concat([parts(cells), xp.reshape(cells, (len(cells), -1, cells.shape[-1]))], axis=1)


def windows(cells: Array, size: int, step: int) -> Array:
    """Means (N, L, D) of square windows of locations (N, h, w, D), row by row; a smaller map is a single window."""
    _, h, w, _ = cells.shape
    tall, wide = min(size, h), min(size, w)
    return mean_windows(cells, (tall, wide), (min(step, tall), min(step, wide)))


def parts(cells: Array) -> Array:
    """Means (N, 5, D) of all locations (N, h, w, D), and of the four quarters of the map."""
    (n, h, w, dim), xp = cells.shape, array_namespace(cells)
    whole = xp.mean(xp.astype(cells, xp.float32), axis=(1, 2))[:, None]
    if min(h, w) == 1:
        return xp.broadcast_to(whole, (n, 5, dim))
    half = (h + 1) // 2, (w + 1) // 2
    return xp.concat([whole, mean_windows(cells, half, (h - half[0], w - half[1]))], axis=1)


def tiles(pixels: Array, side: int) -> Array:
    """Overlapping squares (N, n, n, 3, side, side) of images (N, 3, S, S): as few as cover them, evenly spaced."""
    size, xp = pixels.shape[-1], array_namespace(pixels)
    n = -(-size // side)
    starts = [round(i * (size - side) / max(1, n - 1)) for i in range(n)]
    rows = [xp.stack([pixels[:, :, y : y + side, x : x + side] for x in starts], axis=1) for y in starts]
    return xp.stack(rows, axis=1)
