"""The random numbers of many views at once, identical to those of `mltta.images.views`.

Creating a NumPy generator takes ten times as long as drawing a crop. NumPy's seeding (`SeedSequence`) and
generator (PCG64), whose streams are guaranteed to be stable, are therefore implemented here for arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from mltta.images.geometry import Floats

Words = NDArray[np.uint64]

_MULTIPLIER = (np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645))
_32, _LOW_32 = np.uint64(32), np.uint64(0xFFFFFFFF)


def draw_numbers(seed: int, ids: Sequence[str], count: int, stream: str, draws: int) -> Floats:
    """Draw uniform numbers in [0, 1) for views 1 to count - 1 of each image, (B * (count - 1), draws)."""
    names = (f"{seed}|{name}|{j}|{stream}" for name in ids for j in range(1, count))
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names)
    numbers = np.empty((len(digests) // 16, draws))
    if not len(numbers):
        return numbers
    high, low, sequence_high, sequence_low = _seeds(digests)
    increment = (
        sequence_high << np.uint64(1) | sequence_low >> np.uint64(63),
        sequence_low << np.uint64(1) | np.uint64(1),
    )
    state = _step(_add(increment, (high, low)), increment)
    for draw in range(draws):
        state = _step(state, increment)
        word: Words = state[0] ^ state[1]
        turn = state[0] >> np.uint64(58)
        word = np.bitwise_or(word >> turn, word << (np.uint64(64) - turn & np.uint64(63)))
        numbers[:, draw] = (word >> np.uint64(11)) * 2.0**-53
    return numbers


def _seeds(digests: bytes) -> list[Words]:
    """`SeedSequence(int.from_bytes(digest, "big")).generate_state(4, uint64)` for each 16-byte digest."""
    pool = list(np.frombuffer(digests, ">u4").astype(np.uint32).reshape(-1, 4).T[::-1])

    def hashed(word: NDArray[np.uint32], constant: int, multiplier: int) -> tuple[NDArray[np.uint32], int]:
        following = constant * multiplier & 0xFFFFFFFF
        word = (word ^ np.uint32(constant)) * np.uint32(following)
        return word ^ word >> np.uint32(16), following

    constant = 0x43B0D7E5
    for i in range(4):
        pool[i], constant = hashed(pool[i], constant, 0x931E8875)
    for source, target in permutations(range(4), 2):
        word, constant = hashed(pool[source], constant, 0x931E8875)
        mixed = np.uint32(0xCA01F9DD) * pool[target] - np.uint32(0x4973F715) * word
        pool[target] = mixed ^ mixed >> np.uint32(16)
    constant, words = 0x8B51F9DD, []
    for i in range(8):
        word, constant = hashed(pool[i % 4], constant, 0x58F38DED)
        words.append(word.astype(np.uint64))
    return [words[i] | words[i + 1] << _32 for i in range(0, 8, 2)]


def _step(state: tuple[Words, Words], increment: tuple[Words, Words]) -> tuple[Words, Words]:
    """state * multiplier + increment in 128 bits, each as a high and a low half."""
    high, low = state
    times_high, times_low = _MULTIPLIER
    a, b, c, d = low >> _32, low & _LOW_32, times_low >> _32, times_low & _LOW_32
    middle = (b * d >> _32) + (a * d & _LOW_32) + (b * c & _LOW_32)
    carried = a * c + (a * d >> _32) + (b * c >> _32) + (middle >> _32)
    return _add((carried + high * times_low + low * times_high, low * times_low), increment)


def _add(one: tuple[Words, Words], other: tuple[Words, Words]) -> tuple[Words, Words]:
    low = one[1] + other[1]
    return one[0] + other[0] + (low < other[1]), low
