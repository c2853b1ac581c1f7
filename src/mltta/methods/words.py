"""Labels in all their words, and the words beside them that they have to stand out from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import array_namespace

from mltta.arrays import Array, like, normalize
from mltta.captions.labelled import LabelledCaptions
from mltta.labels import LabelSet
from mltta.labels.sets import label_key
from mltta.model.prompts import TemplateSource
from mltta.model.vocabulary import SYNONYMS, background_words

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: in nats, at the model's own temperature: how much less a background word resembles a label than that itself does
APART = 5.0


@dataclass(frozen=True)
class Words:
    """Features of the labels' words and of the background, for one label list."""

    features: Array  # (J, D) unit
    owner: Array  # (J,) the label that each word stands for
    share: Array  # (J,) what it weighs: half for the label itself, half for its synonyms together
    background: Array  # (V, D) unit, of words that mean something else than every label


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
    named = like(np.array([label_key(word) in own for word in others]), background)
    first = {label: place for place, label in reversed(list(enumerate(owner)))}
    itself = features[[first[i] for i in range(len(labels))]]
    close = (
        array_namespace(background).max(background @ itself.T, axis=-1) >= 1 - APART / backbone.logit_scale
    )
    owners, shares = (like(np.array(own), background) for own in (owner, np.array(share, np.float32)))
    return Words(features, owners, shares, background[~(named | close)])


def in_context(words: Words, captions: LabelledCaptions, weight: float) -> Words:
    """The same, each word of a label moved towards the mean of the captions that name the label."""
    moved = normalize(words.features + weight * captions.means[words.owner])
    spoken_of = captions.spoken_of[words.owner][:, None]
    return replace(words, features=array_namespace(moved).where(spoken_of, moved, words.features))


def _plain(texts: list[str]) -> LabelSet:
    """Texts as labels; equal ones but for their case are told apart by a number that no prompt reads."""
    names = tuple(f"{text} {i}" for i, text in enumerate(texts))
    return LabelSet(names, tuple(texts), ((),) * len(texts), "words")
