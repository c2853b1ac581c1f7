"""Labels in all their words, and the words beside them that they have to stand out from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.captions.labelled import LabelledCaptions
from mltta.labels import LabelSet
from mltta.labels.sets import label_key
from mltta.model.backbone import Backbone
from mltta.model.prompts import TemplateSource
from mltta.model.vocabulary import SYNONYMS, background_words

#: in nats, at the model's own temperature: how much less a background word resembles a label than that itself does
APART = 5.0


@dataclass(frozen=True)
class Words:
    """Features of the labels' words and of the background, for one label list."""

    features: Tensor  # (J, D) unit
    owner: Tensor  # (J,) the label that each word stands for
    share: Tensor  # (J,) what it weighs: half for the label itself, half for its synonyms together
    background: Tensor  # (V, D) unit, of words that mean something else than every label


def label_words(backbone: Backbone, labels: LabelSet, template: TemplateSource) -> Words:
    """The words of a list, and of the built-in vocabulary those that mean something else than all of them."""
    texts: list[str] = []
    owner: list[int] = []
    share: list[float] = []
    for i, (text, synonyms) in enumerate(zip(labels.texts, labels.synonyms, strict=True)):
        more = synonyms[:SYNONYMS]
        texts += [text, *more]
        owner += [i] * (1 + len(more))
        share += [0.5 if more else 1.0, *[0.5 / len(more) for _ in more]]
    distinct = list(dict.fromkeys(texts))
    kept = backbone.vocabulary(template)
    row = {text: i for i, text in enumerate(distinct)}
    features = backbone.encode_labels(_plain(distinct), template).features[[row[text] for text in texts]]
    others = [word for word in background_words() if kept.row(word) is not None]
    background = kept.features[[kept.row(word) for word in others]]
    own = {label_key(word) for part in (labels.names, labels.texts, *labels.synonyms) for word in part}
    named = torch.tensor([label_key(word) in own for word in others], device=background.device)
    first = {label: place for place, label in reversed(list(enumerate(owner)))}
    itself = torch.tensor([first[i] for i in range(len(labels))], device=background.device)
    close = (background @ features[itself].T).amax(dim=-1) >= 1 - APART / backbone.logit_scale
    device = background.device
    return Words(
        features,
        torch.tensor(owner, device=device),
        torch.tensor(share, device=device),
        background[~(named | close)],
    )


def in_context(words: Words, captions: LabelledCaptions, weight: float) -> Words:
    """The same, each word of a label moved towards the mean of the captions that name the label."""
    moved = F.normalize(words.features + weight * captions.means[words.owner], dim=-1)
    return replace(
        words, features=torch.where(captions.spoken_of[words.owner][:, None], moved, words.features)
    )


def _plain(texts: list[str]) -> LabelSet:
    """Texts as labels; equal ones but for their case are told apart by a number that no prompt reads."""
    names = tuple(f"{text} {i}" for i, text in enumerate(texts))
    return LabelSet(names, tuple(texts), ((),) * len(texts), "words")
