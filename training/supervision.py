"""Which nouns an image shows: from its captions, and from the frozen ImageNet classifier on the same crop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from imagenet_words import PARTIAL, coarse_indices


@dataclass
class Targets:
    """Per image and noun: probability that it applies, and weight of that statement (0: unknown)."""

    value: torch.Tensor
    weight: torch.Tensor

    def pairs(self, first: torch.Tensor, second: torch.Tensor) -> Targets:
        """Targets of pictures made of two images: what either shows is there."""
        value = torch.maximum(self.value[first], self.value[second])
        a, b = self.weight[first], self.weight[second]
        present = torch.maximum(a * (self.value[first] > 0.5), b * (self.value[second] > 0.5))
        return Targets(value, torch.where(value > 0.5, present, torch.minimum(a, b)))

    def joined(self, other: Targets) -> Targets:
        return Targets(torch.cat([self.value, other.value]), torch.cat([self.weight, other.weight]))


class NounSupervision:
    """Turns caption labels and the classifier's probabilities into targets.

    Args:
        nouns: the label set.
        labels: captions' verdict per Flickr8k image and noun: 1, 0 or -1 (unknown).
        weak: weight of "no caption mentions it".
        high, low: probabilities from which and up to which the classifier is believed.
        balance: exponent with which frequent nouns are weighted down.
    """

    def __init__(
        self, nouns: list[str], labels: np.ndarray, device: torch.device, weak: float = 0.5,
        high: float = 0.5, low: float = 0.02, balance: float = 0.5, least: int = 8,
    ) -> None:  # fmt: skip
        self.weak, self.high, self.low = weak, high, low
        self.labels = torch.from_numpy(labels).to(device)
        table = {w: c for w, c in coarse_indices().items() if w in set(nouns)}
        position = {noun: i for i, noun in enumerate(nouns)}
        self.columns = torch.tensor([position[w] for w in table], device=device)
        self.members = torch.zeros(1000, len(table), device=device)  # classes of each coarse word
        for column, classes in enumerate(table.values()):
            self.members[classes, column] = 1
        self.denies = torch.tensor([w not in PARTIAL for w in table], device=device)
        count = (labels == 1).sum(0)
        self.mentioned = torch.from_numpy(count >= least).to(
            device
        )  # too rare in captions: absence says nothing
        classes = np.zeros(len(nouns))
        classes[self.columns.cpu().numpy()] = self.members.sum(0).cpu().numpy()
        self.active = (count >= least) | (classes > 0)
        frequency = np.maximum(count, 5 * classes) + 20.0
        weight = frequency**-balance * self.active
        self.noun_weight = torch.from_numpy(weight / weight[self.active].mean()).float().to(device)

    def __call__(self, flickr: torch.Tensor, teacher: torch.Tensor) -> Targets:
        """Targets of a batch: first the given Flickr8k images, then ImageNet ones.

        Args:
            flickr: rows of the Flickr8k images in `labels`.
            teacher: the classifier's probabilities for the whole batch (B, 1000).
        """
        own = self.labels[flickr]
        value = torch.zeros(len(teacher), self.labels.shape[1], device=teacher.device)
        weight = torch.zeros_like(value)
        n = len(own)
        value[:n] = (own == 1).float()
        weight[:n] = torch.where(own == 1, 1.0, self.weak) * (own != -1) * (self.mentioned | (own == 1))
        # Most ImageNet photographs show their class and little else. Without this nothing ever denies a person:
        # nearly all captions name one, and the classifier does not know the word.
        weight[n:] = 0.5 * self.weak * self.mentioned
        coarse = (teacher @ self.members).clamp(max=1.0)
        sure, absent = coarse > self.high, (coarse < self.low) & self.denies
        before, strength = value[:, self.columns], weight[:, self.columns]
        named = before == 1
        # of words that its classes cover only in part the classifier cannot deny the rest
        doubtful = ~named & ~sure & ~absent & (self.denies | (coarse >= self.low))
        doubtful[:n] &= self.denies  # there the captions keep the say
        strength = torch.where(doubtful, 0.0, strength)
        hidden = torch.zeros_like(named)
        hidden[:n] = own[:, self.columns] == -1
        strength = torch.where(absent & ~named & ~hidden, 1.0, strength)
        strength = torch.where(sure & ~named, 1.0, strength)
        value[:, self.columns] = torch.where(sure & ~named, coarse, before)
        weight[:, self.columns] = strength
        return Targets(value, weight * self.noun_weight)

    def shown(self, classes: list[int]) -> np.ndarray:
        """Nouns per training image as booleans: Flickr8k, then ImageNet samples of the given classes."""
        captions = (self.labels == 1).cpu().numpy()
        samples = np.zeros((len(classes), captions.shape[1]), bool)
        samples[:, self.columns.cpu().numpy()] = self.members[classes].cpu().numpy() > 0
        return np.concatenate([captions, samples])
