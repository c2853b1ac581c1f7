"""Scoring of a label list from one vector or from local views, without training.

Each view's softmax over the labels is weighted by its confidence, its highest probability; with captions, by the
product with their votes. Scores of several input sizes are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from open_clip.model import CLIP
from torch import Tensor

from training.windows import features, locations

SOFTER = 2 / 3  # fraction of the logit scale used for a view
FLOOR = 0.01  # a label without votes keeps a tenth of its probability


@dataclass(frozen=True)
class Scale:
    """An input scale: size of the input, size of a window in locations, and its stride."""

    size: int
    window: int = 0  # 0: the whole image
    stride: int = 1

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Read "196" or "280x3x1"."""
        return cls(*(int(number) for number in text.split("x")))


ONE, FAST, LARGE = Scale(196), Scale(224, 3, 1), Scale(336, 3, 1)
AUTO = (ONE, FAST, LARGE)


@dataclass(frozen=True)
class Votes:
    """Captions (K, E) as unit features, and the labels that they name (K, C)."""

    captions: Tensor
    names: Tensor

    def __call__(self, views: Tensor, logit_scale: Tensor) -> Tensor:
        """Share (n, V, C) of the captions near each view that name the label."""
        return (logit_scale * views @ self.captions.T).softmax(-1) @ self.names


def confident_mean(evidence: Tensor) -> Tensor:
    """Mean (n, C) of the views' evidence (n, V, C), each view weighted by its maximum."""
    weight = evidence.amax(-1, keepdim=True)
    return (evidence * weight).sum(1) / weight.sum(1)


@torch.inference_mode()
def views(model: CLIP, pictures: Mapping[int, Tensor], scales: Sequence[Scale]) -> list[Tensor]:
    """Unit features (n, V, E) of the views at each scale.

    Args:
        pictures: pixels (n, 3, size, size) in [-1, 1] at each size in `scales`.
    """
    return [features(model, locations(model, pictures[s.size]), s.window, s.stride) for s in scales]


@torch.inference_mode()
def answers(seen: Sequence[Tensor], text: Tensor, logit_scale: Tensor, votes: Votes | None = None) -> Tensor:
    """Scores (scales, n, C) of labels; the final score is the mean over scales.

    Args:
        seen: the views at each scale.
        text: unit label features (C, E).
    """
    found = []
    for own in seen:
        evidence = (SOFTER * logit_scale * own @ text.T).softmax(-1)  # (n, V, C)
        if votes is not None:
            evidence = evidence * (votes(own, logit_scale) + FLOOR).sqrt()
        found.append(confident_mean(evidence))
    return torch.stack(found)
