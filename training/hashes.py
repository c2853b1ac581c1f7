"""Perceptual hashes: which photos are nearly the same picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BITS = 64
SMALL = 4  # side of the thumbnail that confirms a pair
ROWS = 256  # hashes compared with others at a time
CLOSE = 12.0  # mean difference of two thumbnails of the same picture, of 255

Hashes = NDArray[np.uint64]
Pairs = NDArray[np.int64]  # (pairs, 3): two positions, the first smaller, and their distance


def difference_hash(image: Image.Image) -> int:
    """64 bits: whether each of 8 × 8 cells is darker than its right neighbor."""
    grey = np.asarray(image.convert("L").resize((9, 8), Image.Resampling.BOX), np.int16)
    bits = np.packbits((grey[:, :-1] < grey[:, 1:]).ravel())
    return int.from_bytes(bits.tobytes(), "big")


def thumbnail(image: Image.Image) -> bytes:
    """The colors of 4 × 4 cells."""
    return image.convert("RGB").resize((SMALL, SMALL), Image.Resampling.BOX).tobytes()


def alike(first: bytes, second: bytes) -> bool:
    """Whether two thumbnails can be the same picture; flat pictures share hashes by chance."""
    a, b = (np.frombuffer(own, np.uint8).astype(np.float64) for own in (first, second))
    return bool(np.abs(a - b).mean() <= CLOSE)


def distances(one: Hashes, other: Hashes) -> NDArray[np.uint8]:
    """Number of bits in which two arrays of hashes differ, by broadcasting."""
    rest = one ^ other
    count: NDArray[np.uint8]
    if hasattr(np, "bitwise_count"):  # NumPy 2
        count = np.bitwise_count(rest)
    else:
        count = _ONES[rest[..., None].view(np.uint8)].sum(-1, dtype=np.uint8)
    return count


def pairs(hashes: Hashes, distance: int) -> Pairs:
    """All pairs of at most some distance, sorted.

    Hashes that differ in `distance` bits agree in one of `distance` + 1 bands, so only these are compared.
    """
    edges = np.linspace(0, BITS, distance + 2).astype(int)
    masks = [np.uint64(((1 << int(high - low)) - 1) << int(low)) for low, high in pairwise(edges)]
    found = [np.zeros((0, 3), np.int64)]
    for k, mask in enumerate(masks):
        band = hashes & mask
        order = np.argsort(band, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(band[order]) != 0, True])
        for start, end in pairwise(starts):
            members = order[start:end]  # in ascending order, as the sort is stable
            for low in range(0, len(members) - 1, ROWS):
                near = distances(hashes[members[low : low + ROWS], None], hashes[members[low:]])
                one, other = np.nonzero(np.triu(near <= distance, 1))
                i, j = members[low + one], members[low + other]
                new = np.ones(len(i), bool)
                for before in masks[:k]:
                    new &= ((hashes[i] ^ hashes[j]) & before) != 0  # else an earlier band has the pair
                if new.any():
                    found.append(np.stack([i, j, near[one, other]], axis=1)[new])
    every = np.concatenate(found)
    return every[np.lexsort((every[:, 1], every[:, 0]))]


def nearest(hashes: Hashes, others: Hashes, distance: int) -> Pairs:
    """Pairs of a hash and one of other hashes, by their positions, of at most some distance."""
    found = [np.zeros((0, 3), np.int64)]
    for low in range(0, len(hashes), ROWS):
        near = distances(hashes[low : low + ROWS, None], others)
        i, j = np.nonzero(near <= distance)
        found.append(np.stack([low + i, j, near[i, j]], axis=1))
    return np.concatenate(found)


def groups(n: int, links: Sequence[tuple[int, int]]) -> list[int]:
    """The first member of the group of each of n things, of which some are linked."""
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in links:
        a, b = root(i), root(j)
        parent[max(a, b)] = min(a, b)
    return [root(i) for i in range(n)]


_ONES = np.array([bin(i).count("1") for i in range(256)], np.uint8)
