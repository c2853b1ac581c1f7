"""Calibrated scores and the labels shown: one decision rule for every interface.

Two sources of evidence are combined. The method's softmax ranks the labels of the list, but it always adds up to one,
even if no label is in the image. The caption votes measure what similar sentences mention: the fraction of the captions
nearest to each view that name a label. The caption base covers much more than the list, so votes stay near zero for a
label that is not in the image. The geometric mean of both is the evidence. A label needs enough of it, and enough
compared to the best label. Nothing is present if hardly any caption mentions the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltta.errors import ConfigError
from mltta.labels.branches import Branches
from mltta.methods.base import branch_probabilities

Floats = NDArray[np.float32]
#: a label is shown if it scores at least this; chosen on the dev sets, see docs/auto.md
SHOWN_FROM = 0.3
#: a label is written as a keyword if it scores at least this
KEYWORDS_FROM = 0.7
#: if no label of the default list is shown, the best one is named if it scores at least this
SUBJECT_FROM = 0.15


@dataclass(frozen=True)
class Presence:
    """The decision rule and its constants, chosen on the VOC2012 and COCO dev sets together (docs/results.md)."""

    #: captions that vote, per view
    captions_per_view: int = 16
    #: a label is present if it has at least this fraction of the best label's evidence, and at least this evidence
    share: float = 0.15
    enough: float = 0.08
    #: minimum votes of the best label for anything to be present
    least: float = 0.08
    #: floors that keep one source from vetoing a label that no caption names or that has a low softmax
    floor_probability: float = 1e-3
    floor_votes: float = 1e-2

    def __post_init__(self) -> None:
        shares = (self.share, self.enough, self.least)
        if self.captions_per_view < 1 or not all(0 <= share <= 1 for share in shares):
            raise ConfigError(f"the constants of presence must be between 0 and 1; got {self}")

    def evidence(self, probability: Floats, votes: Floats) -> Floats:
        """Evidence (B, C) between 0 and about 1, from softmax probabilities and caption votes."""
        found: Floats = np.sqrt((probability + self.floor_probability) * (votes + self.floor_votes))
        return found

    def strength(self, evidence: Floats, votes: Floats) -> Floats:
        """Evidence (B, C) of each label relative to the evidence required; at least 1 means present."""
        mentioned = votes.max(axis=-1, keepdims=True) >= self.least
        needed = np.maximum(self.share * evidence.max(axis=-1, keepdims=True), self.enough)
        strength: Floats = evidence / needed
        return np.where(mentioned, strength, np.minimum(strength, 0.99))

    def present(self, evidence: Floats, votes: Floats) -> NDArray[np.bool_]:
        """Boolean (B, C): the labels present in each image."""
        found: NDArray[np.bool_] = self.strength(evidence, votes) >= 1
        return found


@dataclass(frozen=True)
class Decision:
    """Turns a method's output and caption votes into a score per label, and selects the labels to show.

    Methods that emit log-odds (`auto`) are already calibrated. For every other method the rule combines its
    probabilities with caption votes, so that scores are comparable between photos.

    Args:
        threshold: show labels that score at least this (default: 0.3, or 0 with ``top_k``).
        top_k: show at most this many labels, best first.
        keywords_from: of the labels shown, those that score at least this are written as keywords.
    """

    threshold: float | None = None
    top_k: int | None = None
    rule: Presence = field(default_factory=Presence)
    keywords_from: float = KEYWORDS_FROM

    def __post_init__(self) -> None:
        if not 0 <= self.keywords_from <= 1:
            raise ConfigError(
                f"keywords_from = {self.keywords_from} is out of range: give a score from 0 to 1"
            )
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold = {self.threshold} is out of range: give a score from 0 to 1")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k = {self.top_k} is out of range: give at least 1")

    def scores(self, branches: Any, votes: Any, emits: str) -> Floats:
        """Scores (B, C) between 0 and 1, from branches (B, n, C) and, unless these are log-odds, votes (B, C)."""
        probability: Floats = branch_probabilities(branches, emits)
        if emits == "odds":
            return probability
        strength = self.rule.strength(self.rule.evidence(probability, votes), votes)
        return strength * SHOWN_FROM / (1 - SHOWN_FROM + strength * SHOWN_FROM)

    def shown(self, scores: Floats, branches: Branches | None = None) -> NDArray[np.bool_]:
        """Which labels (B, C) are shown.

        Args:
            branches: the tree of a built-in list: shows no near-duplicates, and names the main subject if no label is
                confident. Labels that a user typed have none, and are never suppressed.
        """
        least = self.threshold if self.threshold is not None else 0 if self.top_k else SHOWN_FROM
        enough: NDArray[np.bool_] = scores >= np.float32(least)
        if branches is not None:
            enough = branches(scores, enough)
            if least == SHOWN_FROM:
                for row in np.flatnonzero(~enough.any(axis=-1) & (scores.max(axis=-1) >= SUBJECT_FROM)):
                    enough[row, branches.instead(scores[row])] = True
        if self.top_k is None:
            return enough
        order = np.argsort(np.where(enough, -scores, np.inf), axis=-1, kind="stable")[..., : self.top_k]
        best = np.zeros_like(enough)
        np.put_along_axis(best, order, True, axis=-1)
        return best & enough

    def keywords(self, scores: Floats, branches: Branches | None = None) -> NDArray[np.bool_]:
        """Which labels (B, C) are written as keywords: those shown that score enough."""
        sure: NDArray[np.bool_] = scores >= np.float32(self.keywords_from)
        return self.shown(scores, branches) & sure
