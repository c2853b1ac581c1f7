"""The words of labels, and the fixed vocabulary that each label competes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.arrays import Array, like, on_grid, to_numpy
from mltta.captions.labelled import LabelledCaptions, label_captions
from mltta.captions.store import CaptionBase
from mltta.labels import LabelSet, each_alone
from mltta.labels.sets import label_key
from mltta.labels.tree import everyday_tree, node_of
from mltta.model.prompts import TemplateSource
from mltta.model.vocabulary import SYNONYMS, rivals

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: in nats, at the model's temperature: a word of the vocabulary that is nearer to a label means the same
APART = 5.0
#: bits of a coordinate: sums of products of two such unit vectors are exact in float32, in any order
BITS = 12


@dataclass(frozen=True)
class Words:
    """Columns: the V words of the fixed vocabulary, then the labels that are not among them.

    Everything about a column depends on it alone, so that scores do not depend on the rest of the list.
    """

    features: Array  # (J, D) unit features of the columns' words
    owner: Array  # (J,) the column of each word, ascending
    share: Array  # (J,) its weight: half for the name, half for all synonyms
    common: Array  # (columns,) 1 for common objects, 0 for others
    column: Array  # (P,) a column, ascending, …
    same: (
        Array  # (P,) … and a word of the vocabulary that means the same, or is above or below it in the tree
    )
    label: Array  # (Q,) a label of the list, ascending, …
    implied_by: Array  # (Q,) … and its column, or one below it in the tree
    own: Array  # (C,) the column of each label
    called: tuple[str, ...]  # the word of the tree that each column is, or its text
    rivals: int  # V
    #: captions, with the columns that each of them mentions
    captions: LabelledCaptions | None = None


def label_words(
    backbone: Backbone, labels: LabelSet, template: TemplateSource, base: CaptionBase | None = None
) -> Words:
    """The columns of a label list.

    Args:
        base: captions to search for the columns' words.
    """
    fixed, given = rivals(), each_alone(labels)
    place = {(fixed.texts[i], fixed.synonyms[i]): i for i in range(len(fixed))}
    new: list[int] = []
    own: list[int] = []
    for i, meant in enumerate(zip(given.texts, given.synonyms, strict=True)):
        if meant not in place:
            place[meant] = len(place)
            new.append(i)
        own.append(place[meant])
    sets = (fixed, given.pick(new)) if new else (fixed,)
    texts, owner, share = _words(sets)
    features = backbone.encode_words(texts, template)
    names = to_numpy(on_grid(features, BITS))[np.searchsorted(owner, np.arange(len(place)))]
    near = names @ names[: len(fixed)].T > 1 - APART / backbone.logit_scale
    column, same = np.nonzero(near | _same(sets))
    label, implied_by = _implied(given, own)
    called = tuple(node_of((text, *more)) or text for one in sets for _, text, more in _entries(one))
    common = np.isin(called, LabelSet.load("coco").texts).astype(np.float32)
    values = {
        "owner": owner,
        "share": share,
        "common": common,
        "column": column,
        "same": same,
        "label": label,
        "implied_by": implied_by,
        "own": np.array(own),
    }
    arrays: dict[str, Any] = {name: like(one, features) for name, one in values.items()}
    heard = None if base is None else _heard(sets, backbone, base)
    return Words(features, called=called, rivals=len(fixed), captions=heard, **arrays)


def _words(sets: Sequence[LabelSet]) -> tuple[list[str], NDArray[np.int64], NDArray[np.float32]]:
    """All words, the column of each, and its share of the column's weight."""
    texts: list[str] = []
    counts: list[int] = []
    share: list[float] = []
    for text, synonyms in (pair for one in sets for pair in zip(one.texts, one.synonyms, strict=True)):
        more = synonyms[:SYNONYMS]
        texts += [text, *more]
        counts.append(1 + len(more))
        share += [0.5 if more else 1.0, *[0.5 / len(more) for _ in more]]
    return texts, np.repeat(np.arange(len(counts)), counts), np.array(share, np.float32)


@cache
def _meanings() -> dict[str, frozenset[int]]:
    """By key: the words of the vocabulary with this name or synonym, and those above and below the named ones."""
    fixed, tree = rivals(), everyday_tree()
    row = {label_key(text): i for i, text in enumerate(fixed.texts)}
    found: dict[str, set[int]] = {}
    for i, (text, synonyms) in enumerate(zip(fixed.texts, fixed.synonyms, strict=True)):
        branch = {i, *(row[word] for word in (*tree.above(label_key(text)), *tree.below(label_key(text))))}
        found.setdefault(label_key(text), set()).update(branch)
        for word in synonyms:
            found.setdefault(label_key(word), set()).add(i)
    return {word: frozenset(own) for word, own in found.items()}


def _same(sets: Sequence[LabelSet]) -> NDArray[np.bool_]:
    """Mask (columns, V): words of the vocabulary that mean the same as a column, or are on its branch."""
    meanings, rows = _meanings(), []
    row = {label_key(text): i for i, text in enumerate(rivals().texts)}
    for name, text, synonyms in (entry for one in sets for entry in _entries(one)):
        mask = np.zeros(len(row), bool)
        for word in {label_key(name), label_key(text)}:
            mask[list(meanings.get(word, ()))] = True
        mask[[row[key] for key in map(label_key, synonyms) if key in row]] = True
        rows.append(mask)
    return np.stack(rows)


def _entries(labels: LabelSet) -> list[tuple[str, str, tuple[str, ...]]]:
    return list(zip(labels.names, labels.texts, labels.synonyms, strict=True))


def _implied(given: LabelSet, own: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of a label and a column that implies it: its own, and those below it in the tree."""
    tree = everyday_tree()
    row = {label_key(text): i for i, text in enumerate(rivals().texts)}
    label: list[int] = []
    column: list[int] = []
    for i, (name, text, synonyms) in enumerate(_entries(given)):
        below = {word for one in (name, text, *synonyms) for word in tree.below(label_key(one))}
        found = sorted({own[i], *(row[word] for word in below)})
        label += [i] * len(found)
        column += found
    return np.array(label), np.array(column)


def _heard(sets: Sequence[LabelSet], backbone: Backbone, base: CaptionBase) -> LabelledCaptions:
    """The captions with the columns that they mention; each part of the columns is searched for by itself."""
    parts = [label_captions(one, backbone, base, apart=True) for one in sets]
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    both = [
        [*a, *(first.n_labels + label for label in b)]
        for a, b in zip(first.mentions, second.mentions, strict=True)
    ]
    count = first.n_labels + second.n_labels
    return LabelledCaptions(first.embeddings, both, count, backbone.acceleration.search, first.texts)
