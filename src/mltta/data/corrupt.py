"""Image corruptions, to measure robustness to distribution shift: fog, blur, noise, contrast, JPEG.

The definitions are those of ImageNet-C. Severities 1, 2 and 3 are its severities 1, 3 and 5, applied at the original
image size with unchanged parameters, as in Pascal-C and COCO-C. Models therefore see less noise and blur in large
photos, which are reduced, than in small ones.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageStat

from mltta.data.dataset import Dataset, Lazy
from mltta.errors import ConfigError, ImageError
from mltta.images.decode import image_id, load_image

SEVERITIES = (1, 2, 3)

# By severity, ImageNet-C's 1, 3 and 5.
FOG = ((1.5, 2.0), (2.5, 1.7), (3.0, 1.4))  # thickness; decay of smaller details
MOTION = ((10, 3.0), (15, 8.0), (20, 15.0))  # radius and standard deviation of the path, in pixels
NOISE = (0.08, 0.18, 0.38)  # standard deviation, where white is 1
CONTRAST = (0.4, 0.2, 0.05)  # remaining share of a pixel's distance from the mean
QUALITY = (25, 15, 7)  # of JPEG

# Larger fog maps only add details too fine to see.
_LARGEST_FOG = 1024
_LONGEST_JPEG = 65_500
_Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def corrupt(dataset: Dataset, kind: str, severity: int = 3, seed: int = 0) -> Dataset:
    """Return the dataset with every image corrupted when it is fetched.

    Args:
        dataset: any dataset; labels and targets do not change.
        kind: one of `CORRUPTIONS`.
        severity: 1, 2 or 3 (1, 3 and 5 in ImageNet-C).
        seed: random seed; random parts depend on it and the content of the image.
    """
    _check(kind, severity)
    # Results are stored by name, so the name contains the seed.
    name = f"{dataset.name}-{kind}-{severity}" + (f"-seed{seed}" if seed else "")
    strength = f"severity {severity} of 3 (ImageNet-C's {2 * severity - 1}), seed {seed}"
    note = f"all images are corrupted by {kind}, {strength}"
    fetch = partial(_fetch, dataset.images, kind, severity, seed)
    return replace(dataset, name=name, images=Lazy(fetch, range(len(dataset))), notes=(*dataset.notes, note))


def corrupt_image(image: Any, kind: str, severity: int = 3, seed: int = 0) -> Image.Image:
    """Return a corrupted RGB image of the same size; depends only on pixels, kind, severity and seed.

    Random parts, such as the direction of the blur, are the same at all severities.

    Args:
        image: anything that `load_image` accepts.
    """
    _check(kind, severity)
    image = load_image(image)
    digest = hashlib.blake2b(f"{seed}|{image_id(image)}|{kind}".encode(), digest_size=16).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
    return _KINDS[kind](image, severity - 1, rng)


def _fetch(images: Sequence[Any], kind: str, severity: int, seed: int, index: int) -> Image.Image:
    return corrupt_image(images[index], kind, severity, seed)


def _check(kind: str, severity: int) -> None:
    if kind not in _KINDS:
        close = difflib.get_close_matches(str(kind), CORRUPTIONS, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"unknown corruption {kind!r}; choose from {', '.join(CORRUPTIONS)}{hint}")
    if severity not in SEVERITIES or not isinstance(severity, int) or isinstance(severity, bool):
        raise ConfigError(f"severity = {severity!r}: give 1 (weak), 2 or 3 (strong)")


def _fog(image: Image.Image, level: int, rng: np.random.Generator) -> Image.Image:
    """Blend with a cloud; ImageNet-C's formula for images with a white pixel, to add fog to dark ones too."""
    thickness, decay = FOG[level]
    scale = min(1.0, _LARGEST_FOG / max(image.size))
    width, height = (math.ceil(side * scale) for side in image.size)
    cloud = _plasma(1 << (max(width, height, 2) - 1).bit_length(), decay, rng)[:height, :width]
    if scale < 1:
        drawn = Image.fromarray(np.ascontiguousarray(cloud))
        cloud = np.asarray(drawn.resize(image.size, Image.Resampling.BILINEAR))
    share = thickness / (1 + thickness)
    veil = cloud * np.float32(255 * share)
    return _each_band(image, lambda band: band * np.float32(1 - share) + veil)


def _plasma(size: int, decay: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a cloud in [0, 1] by the diamond-square algorithm, on a torus whose side is a power of two."""
    heights = np.zeros((size, size), np.float32)
    step, roughness = size, 1.0

    def between(neighbours: NDArray[np.float32]) -> NDArray[np.float32]:
        wobble = 2 * rng.random(neighbours.shape, np.float32) - 1
        return np.asarray(neighbours / 4 + wobble * np.float32(roughness))

    while step > 1:
        half = step // 2
        corners = heights[::step, ::step]
        across, down = corners + np.roll(corners, -1, axis=1), corners + np.roll(corners, -1, axis=0)
        centres = between(across + np.roll(across, -1, axis=0))
        heights[half::step, half::step] = centres
        heights[::step, half::step] = between(across + centres + np.roll(centres, 1, axis=0))
        heights[half::step, ::step] = between(down + centres + np.roll(centres, 1, axis=1))
        step, roughness = half, roughness / decay**2
    heights -= heights.min()
    heights /= max(float(heights.max()), 1e-12)
    return heights


def _motion_blur(image: Image.Image, level: int, rng: np.random.Generator) -> Image.Image:
    """Blur along a line within 45 degrees of the horizontal, weighted by half a Gaussian."""
    radius, sigma = MOTION[level]
    angle = math.radians(90 * rng.random() - 45)
    path: dict[tuple[int, int], float] = {}
    for i in range(2 * radius + 1):
        place = round(i * math.sin(angle)), round(i * math.cos(angle))
        path[place] = path.get(place, 0.0) + math.exp(-0.5 * (i / sigma) ** 2)
    total, reach = sum(path.values()), 2 * radius
    width, height = image.size

    def drag(band: NDArray[np.float32]) -> NDArray[np.float32]:
        wide = np.pad(band, ((reach, reach), (0, reach)), mode="edge")
        dragged = np.zeros_like(band)
        for (dy, dx), weight in path.items():
            dragged += np.float32(weight / total) * wide[reach + dy : reach + dy + height, dx : dx + width]
        return dragged

    return _each_band(image, drag)


def _noise(image: Image.Image, level: int, rng: np.random.Generator) -> Image.Image:
    """Add Gaussian noise by Box-Muller, as only rng.random() is stable across numpy releases."""

    def disturb(band: NDArray[np.float32]) -> NDArray[np.float32]:
        length = np.sqrt(-2 * np.log1p(-rng.random((band.size + 1) // 2)))
        angle = 2 * math.pi * rng.random((band.size + 1) // 2)
        both = np.concatenate([length * np.cos(angle), length * np.sin(angle)], dtype=np.float32)
        return np.asarray(band + np.float32(255 * NOISE[level]) * both[: band.size].reshape(band.shape))

    return _each_band(image, disturb)


def _low_contrast(image: Image.Image, level: int, rng: np.random.Generator) -> Image.Image:
    kept, means = CONTRAST[level], ImageStat.Stat(image).mean
    return image.point([round(mean + kept * (value - mean)) for mean in means for value in range(256)])


def _jpeg(image: Image.Image, level: int, rng: np.random.Generator) -> Image.Image:
    if max(image.size) > _LONGEST_JPEG:
        limit = f"which supports at most {_LONGEST_JPEG:,} per side; make the image smaller first"
        raise ImageError(f"{image.width}x{image.height} pixels are too many for JPEG, {limit}")
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY[level], comment=b"")  # drops the comment of the image
    return Image.open(file).convert("RGB")


def _each_band(image: Image.Image, change: _Change) -> Image.Image:
    """Apply a change to red, green and blue levels (H, W), rounded and clipped to 0 to 255."""
    changed = np.empty((image.height, image.width, 3), np.uint8)
    for i, band in enumerate(image.split()):
        changed[..., i] = np.rint(np.clip(change(np.asarray(band, np.float32)), 0, 255))
    return Image.fromarray(changed)


_KINDS: dict[str, Callable[[Image.Image, int, np.random.Generator], Image.Image]] = {
    "fog": _fog,
    "motion-blur": _motion_blur,
    "noise": _noise,
    "low-contrast": _low_contrast,
    "jpeg": _jpeg,
}
#: available corruptions
CORRUPTIONS = tuple(_KINDS)
