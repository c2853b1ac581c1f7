"""Targets for nouns: from an image's captions or its class, and from the frozen ImageNet classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.imagenet_words import PARTIAL, WITHOUT_PEOPLE, coarse_indices
from training.noun_words import DOGS, IMPLIES, PASSED_OVER, PEOPLE
from training.nouns import key_of

EXCLUDED = 0.7  # reliability above which an absence from a labeled photo is certain


@dataclass
class Targets:
    """Per image and noun: probability that it applies, and its reliability (0: unknown, 1: certain)."""

    value: Tensor
    known: Tensor

    def composed(self, members: Tensor) -> Targets:
        """Targets of composed images: present if any part shows it, absent if all parts lack it.

        Args:
            members: (images, parts) rows of the parts.
        """
        value, known = self.value[members], self.known[members]  # (pictures, parts, nouns)
        there = (known * (value > 0.5)).amax(1)
        return Targets(value.amax(1), torch.where(value.amax(1) > 0.5, there, known.amin(1)))

    def apart(self, members: Tensor) -> Targets:
        """Targets of the parts of composed images: nouns shown only by other parts are certainly absent.

        Except for unknown nouns; a part must be distinguished from its neighbours.
        """
        there = self.value[members] > 0.5  # (pictures, parts, nouns)
        elsewhere = (there.any(1, keepdim=True) & ~there).flatten(0, 1)
        rows = members.flatten()
        known = self.known[rows]
        return Targets(self.value[rows], known.masked_fill(elsewhere & (known > 0), 1.0))

    def joined(self, other: Targets) -> Targets:
        """Concatenate the targets of two sets of images."""
        return Targets(torch.cat([self.value, other.value]), torch.cat([self.known, other.known]))


def group(nouns: Sequence[str], words: frozenset[str]) -> NDArray[np.bool_]:
    """Mask of nouns that are among some words, in singular or plural."""
    keys = {key_of(w) for w in words} | words
    return np.array([n in keys or key_of(n) in keys for n in nouns])


def class_labels(nouns: Sequence[str], classes: Sequence[int]) -> NDArray[np.int8]:
    """Labels of ImageNet photos by class: 1 for its everyday words and their implications, else 0."""
    position = {noun: i for i, noun in enumerate(nouns)}
    table = np.zeros((1000, len(nouns)), np.int8)
    for word, members in coarse_indices().items():
        for name in (word, *IMPLIES.get(word, ())):
            if name in position:
                table[members, position[name]] = 1
    labels: NDArray[np.int8] = table[np.asarray(classes, dtype=int)]
    return labels


class NounSupervision:
    """Converts labels of images and the classifier's probabilities into targets.

    Args:
        nouns: the label set.
        captions: labels from captions for each captioned image and noun: 1, 0 or -1 (unknown).
        classes: class of each ImageNet photo; its rows follow the captioned images.
        given: labels of labeled photos and their reliability, as read by `photo_labels`; their rows come last.
        weak: weight of absence from the captions.
        passed_over: fraction of that weight for objects that captions rarely mention.
        high, low: thresholds on probabilities of the whole image above and below which the classifier is trusted; the
            lower one is higher for words with many classes.
        high_window, low_window: the same for its maximum over windows.
        balance: exponent for down-weighting frequent nouns.
        least: minimum mentions and classes for a noun's absence to be informative.
    """

    def __init__(
        self, nouns: Sequence[str], captions: NDArray[np.int8], classes: Sequence[int], device: torch.device,
        given: tuple[NDArray[np.int8], NDArray[np.float16]] | None = None, *, weak: float = 0.5,
        passed_over: float = 0.5, high: float = 0.5, low: float = 0.02,
        high_window: float = 0.7, low_window: float = 0.05, balance: float = 0.5, least: int = 8,
    ) -> None:  # fmt: skip
        self.high, self.high_window = high, high_window
        position = {noun: i for i, noun in enumerate(nouns)}
        table = {w: c for w, c in coarse_indices().items() if w in position}
        columns = np.array([position[w] for w in table])
        members = np.zeros((1000, len(table)), np.float32)  # classes of each coarse word
        for column, own in enumerate(table.values()):
            members[own, column] = 1
        overlooked = group(nouns, PASSED_OVER)

        count = (captions == 1).sum(0)
        per_noun = np.zeros(len(nouns))
        per_noun[columns] = members.sum(0)
        more = (given[0] == 1).sum(0) if given else np.zeros(len(nouns), np.int64)
        self.active = (count >= least) | (per_noun > 0) | (more >= least)
        frequency = np.maximum(count, 5 * per_noun) + more + 20.0
        weight = frequency**-balance * self.active
        self.noun_weight = weight / weight[self.active].mean()  # on the host, for sampling

        labels = np.concatenate([captions, class_labels(nouns, classes)])
        certain = _certainty(nouns, labels, len(captions), classes, weak, passed_over, count >= least)
        self.first_given = len(labels)
        if given:
            labels, certain = np.concatenate([labels, given[0]]), np.concatenate([certain, given[1]])
        certain *= self.active
        self.flickr = len(captions)
        self.shown = labels == 1  # (images, nouns), for label sentences
        self.labels = torch.from_numpy(labels).to(device)
        self.certain = torch.from_numpy(certain.astype(np.float16)).to(device)
        self.columns = torch.from_numpy(columns).to(device)
        self.members = torch.from_numpy(members).to(device)
        chance = self.members.mean(0) / 4  # words with many classes, such as dog, always get some probability
        self.low, self.low_window = low + chance, low_window + chance
        self.denies = torch.tensor([w not in PARTIAL for w in table], device=device)
        # for objects that are usually small, a low probability of the whole image is less informative
        self.denial = torch.from_numpy(np.where(overlooked[columns], weak, 1.0)).float().to(device)
        self.active_nouns = torch.from_numpy(self.active).to(device)
        self.weights = torch.from_numpy(self.noun_weight).float().to(device)
        share = count / max(len(captions), 1)  # balance positives and negatives of very frequent nouns
        factor = np.clip(share / np.maximum(1 - share, 0.05), 1.0, 10.0)
        self.denied_more = torch.from_numpy(factor).float().to(device)

    def __call__(self, rows: Tensor, picture: Tensor, windows: Tensor | None = None) -> Targets:
        """Targets of a batch.

        Args:
            rows: the images, as rows of the tables.
            picture: the classifier's probabilities (B, 1000) of each whole image.
            windows: its probabilities in windows (B, V, 1000).
        """
        own, known = self.labels[rows], self.certain[rows].float()
        value = (own == 1).float()
        seen = (picture @ self.members).clamp(max=1.0)  # (B, coarse)
        sure, absent = seen > self.high, seen < self.low
        if windows is not None:
            best = (windows @ self.members).clamp(max=1.0).amax(1)
            sure, absent = sure | (best > self.high_window), absent & (best < self.low_window)
            seen = torch.maximum(seen, best * (best > self.high_window))
        absent, sure = absent & self.denies, sure & ~self._ruled_out(rows)
        named, hidden = own[:, self.columns] == 1, own[:, self.columns] == -1
        # for words that classes cover only in part, the classifier cannot decide on absence; captions do
        doubtful = ~named & ~sure & ~absent & (self.denies | (seen >= self.low))
        doubtful &= self.denies | (rows >= self.flickr)[:, None]
        strength = known[:, self.columns].masked_fill(doubtful, 0.0)
        strength = torch.where(absent & ~named & ~hidden, torch.maximum(strength, self.denial), strength)
        known[:, self.columns] = strength.masked_fill(sure & ~named, 1.0)
        value[:, self.columns] = torch.where(sure & ~named, seen, value[:, self.columns])
        return Targets(value, known)

    def _ruled_out(self, rows: Tensor) -> Tensor:
        """Coarse words (B, coarse) that the source of a labeled photo excludes, whatever the classifier says."""
        absent = (self.labels[rows][:, self.columns] == 0) & (self.certain[rows][:, self.columns] > EXCLUDED)
        return absent & (rows >= self.first_given)[:, None]

    def placed(self, rows: Tensor, windows: Tensor) -> Targets:
        """Targets of single windows (B, V, coarse words): positive if the classifier is confident of the word.

        Negative, by its squared confidence, if it is confident of something else, unless the image's captions name the
        word or leave it open.
        """
        seen = (windows @ self.members).clamp(max=1.0)
        sure, confidence = seen > self.high, windows.amax(-1, keepdim=True)
        sure = sure & ~self._ruled_out(rows)[:, None]
        left_open = (self.labels[rows] != 0)[:, None, self.columns]
        denied = (seen < self.low) & self.denies & ~left_open
        return Targets(seen * sure, torch.where(sure, 1.0, confidence.square() * denied))

    def relabel(self, rows: Tensor, p: Tensor, sure: float = 0.8, unsure: float = 0.2) -> float:
        """Change the labels of some images by a model's probabilities (B, nouns); returns how many nouns it adds.

        Nouns that are not certainly absent become present if the model is sure of them, and unknown if it is unsure.
        Absence from captions becomes unknown only: captions name what matters.
        """
        labels, certain = self.labels[rows], self.certain[rows]
        known = (labels == 1) | (certain > EXCLUDED)
        captioned = (rows < self.flickr)[:, None]
        added = (p > sure) & ~known & ~captioned & self.active_nouns
        doubted = (p > unsure) & (labels == 0) & ~known & ~added
        labels = torch.where(added, 1, torch.where(doubted, -1, labels)).to(torch.int8)
        self.labels[rows] = labels
        certain = torch.where(added, 0.5 * p.half(), certain.masked_fill(doubted, 0))
        self.certain[rows] = certain
        return float(added.sum())

    def importance(self, targets: Targets) -> Tensor:
        """Weight of each target in a loss: its reliability and the noun's rarity."""
        factor = torch.where(targets.value > 0.5, self.weights, self.weights * self.denied_more)
        return targets.known * factor


def _certainty(
    nouns: Sequence[str],
    labels: NDArray[np.int8],
    flickr: int,
    classes: Sequence[int],
    weak: float,
    passed_over: float,
    mentioned: NDArray[np.bool_],
) -> NDArray[np.float32]:
    """Reliability of each label (images, nouns): 1 if present or certainly absent, 0 if unknown."""
    absent = np.full(len(nouns), weak) * mentioned * np.where(group(nouns, PASSED_OVER), passed_over, 1.0)
    certain = np.where(labels == 1, 1.0, np.where(labels == 0, absent, 0.0)).astype(np.float32)
    # Most ImageNet photos show little besides their class, but the rest is not annotated.
    certain[flickr:] = np.where(labels[flickr:] == 1, 1.0, 0.5 * weak * mentioned)
    for words, seldom in ((PEOPLE, WITHOUT_PEOPLE), (DOGS, None)):
        member = group(nouns, words)
        none = ~(labels[:, member] == 1).any(1)
        if seldom is not None:
            none[flickr:] &= np.isin(np.asarray(classes, dtype=int), list(seldom))
        rows: NDArray[Any] = np.flatnonzero(none)
        block = np.ix_(rows, np.flatnonzero(member))
        certain[block] = np.where(labels[block] == 0, 1.0, certain[block])
    return certain
