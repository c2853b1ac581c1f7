"""Sentences with up to two labels of an image, "a photo of a dog and a ball.", and which images they match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CONNECTIVES = ["a photo of a", "and a", "."]
Tokens = Sequence[int]


class LabelSentences:
    """Builds a sentence per image from tokens.

    Args:
        connectives: tokens of `CONNECTIVES`.
        nouns: tokens of each noun.
        weight: sampling weight of each noun.
    """

    def __init__(
        self, connectives: Sequence[Tokens], nouns: Sequence[Tokens], weight: NDArray[np.float64]
    ) -> None:
        self.connectives, self.nouns, self.weight = connectives, nouns, weight

    def of(self, first: int, second: int) -> list[int]:
        """Tokens of a sentence with two nouns, or with one noun twice."""
        start, link, stop = self.connectives
        more = [*link, *self.nouns[second]] if second != first else []
        return [*start, *self.nouns[first], *more, *stop]

    def draw(
        self, shown: NDArray[np.bool_], rng: np.random.Generator
    ) -> tuple[list[list[int]], NDArray[np.bool_]]:
        """Tokens of a sentence for each image, and (images, sentences) which images show all nouns of a sentence.

        Args:
            shown: (images, nouns).
        """
        n = len(shown)
        weight = shown * self.weight + 1e-9 * shown
        drawn = np.where(shown, rng.exponential(size=shown.shape) * weight, -1.0)
        two = np.argpartition(-drawn, (0, 1))[:, :2]
        both = shown[np.arange(n), two[:, 1]] & (rng.random(n) < 0.8)
        two[~both, 1] = two[~both, 0]
        fits = shown[:, two[:, 0]] & shown[:, two[:, 1]]
        fits[:, ~shown.any(1)] = False
        return [self.of(a, b) for a, b in two], fits
