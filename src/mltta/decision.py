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

    def present(self, evidence: Tensor, votes: Tensor) -> Tensor:
        """Boolean (B, C): the labels an image shows."""
        spoken_of = votes.amax(dim=-1, keepdim=True) >= self.least
        needed = (self.share * evidence.amax(dim=-1, keepdim=True)).clamp(min=self.enough)
        return (evidence >= needed) & spoken_of


class Decision:
    """The rule at work for one label list: hears the captions, then says how sure it is of each label."""

    def __init__(self, captions: LabelledCaptions, logit_scale: float, rule: Presence | None = None):
        self.captions, self.logit_scale, self.rule = captions, logit_scale, rule or Presence()

    def votes(self, views: Tensor) -> Tensor:
        """What captions say (B, C) of images by their views (B, N, D)."""
        return self.rule.votes(views, self.captions, self.logit_scale)

    def __call__(self, probability: Tensor, votes: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (B, C) between 0 and 1, and which labels are present (B, C)."""
        evidence = self.rule.evidence(probability, votes)
        return evidence.clamp(max=1.0), self.rule.present(evidence, votes)
