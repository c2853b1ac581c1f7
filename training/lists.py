"""Realistic label lists, sampled from the nouns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.noun_words import IMPLIES

USUAL = 0.5  # fraction of the lists with the usual label
ALIKE = 0.75  # minimum cosine of two synonyms in MiniLM's space


class Lists:
    """Samples lists in which no label implies another or is nearly synonymous.

    Args:
        nouns: nouns to sample from.
        weight: sampling weights; 0 excludes a noun.
        similarity: (nouns, nouns) cosines of their meanings.
        usual: a label that is on many lists.
    """

    def __init__(
        self,
        nouns: Sequence[str],
        weight: NDArray[np.float64],
        similarity: NDArray[np.float32],
        usual: str = "person",
    ) -> None:
        self.weight, self.usual = weight, nouns.index(usual) if usual in nouns else None
        position = {noun: i for i, noun in enumerate(nouns)}
        self.clash = similarity > ALIKE
        for word, implied in IMPLIES.items():
            for other in implied:
                if word in position and other in position:
                    self.clash[position[word], position[other]] = True
        self.clash |= self.clash.T

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Indices of at most `size` nouns."""
        wait = rng.exponential(size=len(self.weight)) / np.maximum(self.weight, 1e-12)
        wait[self.weight <= 0] = np.inf
        if self.usual is not None and rng.random() < USUAL:
            wait[self.usual] = 0.0
        return self.first(np.argsort(wait)[: int(np.isfinite(wait).sum())], size)

    def first(self, order: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """The first compatible nouns in a given order."""
        shut = np.zeros(len(self.weight), bool)
        chosen: list[int] = []
        for noun in order:
            if not shut[noun]:
                chosen.append(int(noun))
                shut |= self.clash[noun]
                shut[noun] = True
                if len(chosen) == size:
                    break
        return np.array(chosen, np.int64)
