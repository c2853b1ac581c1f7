"""DualPrompt: a label's own prompt, and one that names the labels it often occurs with. No gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mltta.arrays import Array, softmax
from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.methods.base import Emits, Method, Problem, register
from mltta.methods.config import Config, setting
from mltta.model.encoded import Encoded


@dataclass(frozen=True)
class DualPromptConfig(Config):
    """Two co-occurring labels, as in the paper, and both prompts with the same weight."""

    others: int = setting(2, "co-occurring labels in the second prompt", least=0, most=16)
    weight: float = setting(1.0, "weight of the second prompt's probabilities", least=0)


@register("dualprompt", "two prompts per label, one with the labels it often occurs with (ICLR 2026)")
class DualPrompt(Method):
    """The softmax of "a photo of a c." plus that of "a photo of a c often contains a c1, a c2."

    A reconstruction: no code was found, and how scores are normalised is not known. The paper asks a language model
    which labels occur together, or 1% of the annotations; here captions tell.
    """

    Config = DualPromptConfig
    branch_names = ["own", "together"]
    emits: Emits = "probabilities"
    requires = frozenset({"captions"})
    reconstruction = True
    config: DualPromptConfig
    captions: LabelledCaptions

    def __init__(self, problem: Problem, config: DualPromptConfig):
        super().__init__(problem, config)
        if problem.backbone is None or problem.labels is None:
            raise ConfigError("dualprompt needs the labels and the text tower: it writes prompts of its own")
        labels = problem.labels
        beside = often_together(self.captions, labels.texts, config.others)
        texts = [
            together(text, [labels.texts[i] for i in own])
            for text, own in zip(labels.texts, beside, strict=True)
        ]
        self.together = problem.backbone.encode_labels(
            replace(labels, texts=tuple(texts)), problem.template
        ).features

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        clean = encoded.features(self.needs[0])  # (B, 1, D)
        own, both = (softmax(self.logits(clean, text)[:, 0]) for text in (self.text.features, self.together))
        return {"own": own, "together": self.config.weight * both}


def often_together(captions: LabelledCaptions, texts: Sequence[str], count: int) -> list[list[int]]:
    """For each label those that captions name beside it most often; of equal ones the first in the alphabet."""
    pairs: list[Counter[int]] = [Counter() for _ in texts]
    for mentioned in captions.mentions[: len(captions) - captions.composed]:
        for label in set(mentioned):
            pairs[label].update(set(mentioned) - {label})
    return [sorted(own, key=lambda i: (-own[i], texts[i]))[:count] for own in pairs]


def together(text: str, others: Sequence[str]) -> str:
    """A label as the second prompt says it; alone if nothing is named beside it."""
    return f"{text} often contains {', '.join(f'a {other}' for other in others)}" if others else text
