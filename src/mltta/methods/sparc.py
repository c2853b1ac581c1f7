"""SPARC: scores on one scale for each image and each prompt, prompts of several labels fused in. No gradient."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.errors import ConfigError
from mltta.images.specs import AnySpec
from mltta.methods.base import Problem, TransductiveMethod, register, z_scores
from mltta.methods.config import PART, SHARE, Config, setting
from mltta.model.encoded import Encoded

#: what varies less than this does not vary
_FLAT = 1e-6


@dataclass(frozen=True)
class SPARCConfig(Config):
    """The paper's settings; which labels go together is read off captions, where the paper has training labels."""

    pair_share: float = setting(0.05, "share of a label's captions at which a pair has a prompt", **PART)
    triple_share: float = setting(0.025, "share of a pair's captions at which a third label joins", **PART)
    compound: float = setting(0.5, "weight of the fused prompts beside the label's own score", **SHARE)
    over: str = setting("", "an episodic method whose scores replace the label's own, e.g. tagclip")


@register("sparc", "prompts of several labels, set on one scale over all images: transductive (CVPR 2025)")
class SPARC(TransductiveMethod):
    """z-scores over the labels of an image, then over the images; ranked prompts fused by their principal axis.

    The paper: https://arxiv.org/abs/2502.16911. It also has sentences of a chat model, which are not public; its
    prompts are published for 80 templates: ``template="openai"``. It squashes an image, here it is the clean view.
    The first step alone is the z-score column of every table. ``over`` applies the other steps to the scores of
    another method, with that method's default settings.
    """

    Config = SPARCConfig
    requires = frozenset({"captions"})
    default_template = "simple"
    config: SPARCConfig

    def __init__(self, problem: Problem, config: SPARCConfig):
        super().__init__(problem, config)
        assert problem.captions is not None  # checked by the base class
        if problem.backbone is None or problem.labels is None:
            raise ConfigError("sparc needs the labels and the text tower: it writes prompts of its own")
        self.inner = problem.inner
        if self.inner is not None:
            if self.inner.online or self.inner.transductive:
                raise ConfigError(
                    f"sparc: {config.over} is not episodic. Name a method that is, e.g. tagclip"
                )
            self.requires, self.reconstruction = (
                self.requires | self.inner.requires,
                self.inner.reconstruction,
            )
        texts = problem.labels.texts
        together = label_groups(problem.captions, texts, config.pair_share, config.triple_share)
        prompts = [_prompt([texts[i] for i in group]) for group in together]
        encode, device = problem.backbone.encode_texts, self.text.features.device
        self.bare = encode(texts).to(device)  # (C, D)
        self.prompts = encode(prompts).to(device) if prompts else self.bare[:0]  # (P, D)
        #: the prompts that name each label
        self.named_by = [[p for p, group in enumerate(together) if i in group] for i in range(len(texts))]

    @property
    def needs(self) -> tuple[AnySpec, ...]:
        return (*super().needs, *(() if self.inner is None else self.inner.needs))

    @property
    def price(self) -> float:
        return super().price if self.inner is None else self.inner.price

    def keep(self, encoded: Encoded) -> Tensor:
        """z-scores (B, C + P) of the labels and of the prompts, these by the scale of the bare labels."""
        image = encoded.features(self.needs[0])[:, 0]  # (B, D)
        single = self.singles(encoded, image)
        bare, several = image @ self.bare.T, image @ self.prompts.T
        if bare.shape[1] > 1:
            spread = bare.std(dim=1, keepdim=True).clamp(min=_FLAT)
            several = (several - bare.mean(dim=1, keepdim=True)) / spread
        return torch.cat([single, several], dim=1)

    def singles(self, encoded: Encoded, image: Tensor) -> Tensor:
        """Scores (B, C) of the labels alone: z-scores of cosines or logits, log-odds or the log of probabilities."""
        own: Tensor = image @ self.text.features.T if self.inner is None else self.inner(encoded)
        if self.inner is not None and self.inner.emits == "probabilities":
            own = own.clamp(min=_FLAT).log()
        elif self.inner is None or self.inner.emits == "logits":
            own = z_scores(own)
        return own

    def finish(self, kept: Tensor) -> dict[str, Tensor]:
        labels = len(self.text)
        columns = kept
        if (
            len(kept) > 1
        ):  # each column less its mean, over its standard deviation; one that does not vary is 0
            spread = kept.std(dim=0)
            columns = torch.where(spread > _FLAT, (kept - kept.mean(dim=0)) / spread.clamp(min=_FLAT), 0.0)
        single, several = columns[:, :labels], columns[:, labels:]
        fused = [self.fuse(single[:, i], several[:, own]) for i, own in enumerate(self.named_by)]
        return {"view": torch.lerp(single, torch.stack(fused, dim=1), self.config.compound)}

    @staticmethod
    def fuse(single: Tensor, several: Tensor) -> Tensor:
        """One score an image (N,) of a label's own (N,) and its prompts' (N, K), which are ranked in each image."""
        if not several.shape[1]:
            return single
        matrix = torch.cat([several.sort(dim=1).values, single[:, None]], dim=1).double()  # (N, K + 1)
        n, width = matrix.shape
        weight = matrix.new_full((width,), 1 / width)  # too few images for axes: the plain mean
        if n > width:
            centred = matrix - matrix.mean(dim=0)
            axis = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1]
            side = axis.mean() if axis.mean().abs() > _FLAT else axis[-1]
            axis = axis * (1 if side > 0 else -1)
            weight = axis / axis.abs().sum()
        return (matrix @ weight).float()


def label_groups(
    captions: LabelledCaptions, texts: tuple[str, ...], pair_share: float, triple_share: float
) -> list[tuple[int, ...]]:
    """Pairs of labels that captions name together, and for each pair its likeliest third, if it is likely at all.

    Labels are taken in the order of the alphabet, so that it does not matter in which order a list has them.
    """
    order = sorted(range(len(texts)), key=lambda i: texts[i])
    place = {label: rank for rank, label in enumerate(order)}
    single: Counter[int] = Counter()
    pairs: Counter[tuple[int, ...]] = Counter()
    triples: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for mentioned in captions.mentions[: len(captions) - captions.composed]:
        labels = sorted(set(mentioned), key=place.__getitem__)
        single.update(labels)
        pairs.update(combinations(labels, 2))
        for pair in combinations(labels, 2):
            triples[pair].update(label for label in labels if label not in pair)
    likely = [pair for pair in pairs if pairs[pair] > pair_share * single[pair[0]]]
    found = sorted(likely, key=lambda pair: [place[i] for i in pair])
    for two in tuple(found):
        others = triples[two]
        best = min(others, key=lambda label: (-others[label], place[label]), default=None)
        if best is not None and others[best] > triple_share * pairs[two]:
            found.append(tuple(sorted((*two, best), key=place.__getitem__)))
    return list(dict.fromkeys(found))


def _prompt(words: list[str]) -> str:
    return f"{words[0]} and {words[1]}" if len(words) == 2 else f"{', '.join(words[:-1])}, and {words[-1]}"
