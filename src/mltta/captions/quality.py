"""How well captions cover a label set: captions a label, labels never mentioned, labels a caption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mltta.captions.nouns import label_matches
from mltta.labels import LabelSet


@dataclass(frozen=True)
class Quality:
    """What captions say about the labels of a set."""

    labels: tuple[str, ...]  # their names
    captions: int  # how many there are
    counts: tuple[int, ...]  # how many captions name each label
    sizes: tuple[int, ...]  # for 0, 1, 2 … labels, how many captions name that many

    @property
    def never(self) -> list[str]:
        """The labels that no caption names."""
        return [label for label, count in zip(self.labels, self.counts, strict=True) if not count]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; labels from the most to the least mentioned."""
        order = sorted(range(len(self.labels)), key=lambda i: -self.counts[i])
        return {
            "captions": self.captions,
            "labels": len(self.labels),
            "captions_per_label": {of.__name__: of(self.counts) for of in (min, median, max)},
            "labels_per_caption": {str(size): count for size, count in enumerate(self.sizes)},
            "never_mentioned": self.never,
            "by_label": {self.labels[i]: self.counts[i] for i in order},
        }


def quality(texts: Sequence[str], labels: LabelSet) -> Quality:
    """Count which labels captions name.

    >>> quality(["A dog.", "A dog and a cat.", "The sky."], LabelSet.of("dog, cat, cow")).counts
    (2, 1, 0)
    """
    mentions = label_matches(texts, labels)
    counts = Counter(label for named in mentions for label in named)
    sizes = Counter(map(len, mentions))
    named, shares = range(len(labels)), range(max(sizes, default=0) + 1)
    return Quality(labels.names, len(texts), tuple(counts[i] for i in named), tuple(sizes[n] for n in shares))
