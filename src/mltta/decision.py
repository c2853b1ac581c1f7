"""Which labels an image shows, for any label list and without data to learn it from.

Two witnesses are heard. The method's softmax says which labels fit best among the list, but it always adds up to
one, even when none is there. The caption votes say what similar sentences speak of: of the captions nearest to
each view, the share that names a label. As the caption base also holds sentences about everything else, the votes
stay near zero for a label that is not in the image. Their geometric mean is the evidence; a label is present when
there is enough of it, and a fair share of the best label's; nothing is when hardly a caption speaks of the list.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError

#: a label is shown from this score on; chosen on the dev sets, docs/auto.md says how
SHOWN_FROM = 0.3


@dataclass(frozen=True)
class Presence:
    """The rule and its constants, chosen on the VOC2012 and COCO dev sets together (docs/results.md)."""

    #: captions heard for each view
    captions_per_view: int = 16
    #: a label is present from this share of the best label's evidence, and from this much evidence
    share: float = 0.15
    enough: float = 0.08
    #: votes the best-voted label needs before anything is present
    least: float = 0.08
    #: keep both witnesses from a veto: a label no caption speaks of, or one that softmax drowns
    floor_probability: float = 1e-3
    floor_votes: float = 1e-2

    def __post_init__(self) -> None:
        shares = (self.share, self.enough, self.least)
        if self.captions_per_view < 1 or not all(0 <= share <= 1 for share in shares):
            raise ConfigError(f"presence takes shares between 0 and 1, not {self}")

    def votes(self, views: Tensor, captions: LabelledCaptions, logit_scale: float) -> Tensor:
        """Share (B, C) of the captions nearest to the views (B, N, D) that name each label."""
        return captions.votes(views, self.captions_per_view, logit_scale).mean(dim=1)

    def evidence(self, probability: Tensor, votes: Tensor) -> Tensor:
        """Evidence (B, C) between 0 and about 1, from softmax probabilities and caption votes."""
        return ((probability + self.floor_probability) * (votes + self.floor_votes)).sqrt()

    def strength(self, evidence: Tensor, votes: Tensor) -> Tensor:
        """How much (B, C) of the evidence that it needs each label has: from 1 on, it is present."""
        spoken_of = votes.amax(dim=-1, keepdim=True) >= self.least
        needed = (self.share * evidence.amax(dim=-1, keepdim=True)).clamp(min=self.enough)
        strength = evidence / needed
        return strength.where(spoken_of, strength.clamp(max=0.99))

    def present(self, evidence: Tensor, votes: Tensor) -> Tensor:
        """Boolean (B, C): the labels an image shows."""
        return self.strength(evidence, votes) >= 1


class Decision:
    """How sure it is of each label of a list, and which of them are shown: those from one score on, whatever the photo.

    A method that gives log-odds of its own (`auto`) has said it all. For every other the captions are heard and the
    rule judges; what it needs of a label in a photo then lies at the same score in all photos.
    """

    def __init__(self, captions: LabelledCaptions | None, logit_scale: float, rule: Presence | None = None):
        self.captions, self.logit_scale, self.rule = captions, logit_scale, rule or Presence()

    def votes(self, views: Tensor) -> Tensor:
        """What captions say (B, C) of images by their views (B, N, D)."""
        assert self.captions is not None  # only a method that gives odds can do without
        return self.rule.votes(views, self.captions, self.logit_scale)

    def of_odds(self, odds: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (B, C) between 0 and 1, and which labels are present (B, C), from log-odds (B, C)."""
        score = odds.sigmoid()
        return score, score >= SHOWN_FROM

    def __call__(self, probability: Tensor, votes: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (B, C) between 0 and 1, and which labels are present (B, C), from a softmax and votes."""
        strength = self.rule.strength(self.rule.evidence(probability, votes), votes)
        score = strength * SHOWN_FROM / (1 - SHOWN_FROM + strength * SHOWN_FROM)
        return score, strength >= 1
