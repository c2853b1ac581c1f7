"""One crop at a time, drawn number by number: the plain twin of `mltta.images.geometry.crop_boxes`."""

from __future__ import annotations

import hashlib
import math
from typing import Protocol

import numpy as np


class Numbers(Protocol):
    def random(self) -> float: ...


def generator(seed: int, identity: str, j: int, stream: str) -> np.random.Generator:
    """The randomness of one view."""
    name = f"{seed}|{identity}|{j}|{stream}".encode()
    digest = hashlib.blake2b(name, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def draw_crop(
    rng: Numbers, size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int]:
    """Left, top, width and height of a random-resized crop: ten tries, then the largest central one."""
    width, height = size
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(10):
        area = width * height * (scale[0] + (scale[1] - scale[0]) * rng.random())
        aspect = math.exp(low + (high - low) * rng.random())
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(rng.random() * (height - h + 1)), int(rng.random() * (width - w + 1))
            return left, top, w, h
    w = min(width, max(1, round(height * ratio[1])))
    h = min(height, max(1, round(width / ratio[0])))
    return (width - w) // 2, (height - h) // 2, w, h
