"""Captions with the labels of one set that each of them names: what is retrieved from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from mltta.arrays import Array, like, multi_hot, normalize, softmax, sum_by, to_numpy
from mltta.captions.compose import compose_captions
from mltta.captions.nouns import label_matches
from mltta.captions.store import CaptionBase
from mltta.errors import CaptionError
from mltta.labels import LabelSet
from mltta.model.search import Search

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: sentences composed for a label that no caption mentions, fewer if there are thousands of labels
PER_LABEL, COMPOSED_AT_MOST = 16, 8192
# Pairs of a caption and a label, and embeddings, that are added up at once.
PAIRS, ROWS = 2**18, 2**14

_lately: deque[tuple[Any, LabelledCaptions]] = deque(maxlen=4)


class LabelledCaptions:
    """Captions with the labels of one set that each of them names, perhaps none: what is retrieved from.

    Arrays are of one kind, NumPy or torch, and on one device: those of the embeddings. So must features be.
    """

    def __init__(
        self,
        embeddings: Array,
        mentions: Sequence[Sequence[int]],
        n_labels: int,
        search: Callable[[Array], Search] = Search,
        texts: Sequence[str] = (),
    ):
        """Args:
        embeddings: (K, D) unit features.
        mentions: for each caption the labels it mentions, in order, repeats kept.
        n_labels: C.
        search: finds the nearest among unit vectors.
        texts: what the captions say, if somebody wants to read it.
        """
        if len(mentions) != embeddings.shape[0] or not len(mentions):
            raise CaptionError(f"{embeddings.shape[0]} caption embeddings for {len(mentions)} label lists")
        xp = array_namespace(embeddings)
        self.embeddings = xp.astype(embeddings, xp.float32, copy=False)
        self._find = search
        self.mentions, self.n_labels, self.texts = mentions, n_labels, texts
        #: how many of them, at the end, are composed here and say nothing of which labels go together
        self.composed = 0
        counts = [len(m) for m in mentions]
        every = np.array([label for own in mentions for label in own], np.int64)
        members = np.full((len(mentions), max(1, *counts)), n_labels)  # n_labels = no label
        members[np.arange(members.shape[1]) < np.array(counts)[:, None]] = every
        self._members = self._like(members.astype(np.int32))  # (K, longest)
        #: each label with each caption that names it, once, in the order of the labels
        pairs = np.unique(every * len(mentions) + np.repeat(np.arange(len(mentions)), counts))
        self._pairs = np.divmod(pairs, len(mentions))  # (P,) each
        # NumPy adds up runs of one label; a GPU is slowed down by neighbours that add to the same sum
        order = np.argsort(self._pairs[1], kind="stable") if is_torch_array(embeddings) else slice(None)
        self._label, self._caption = (self._like(part[order]) for part in self._pairs)
        distinct = np.bincount(self._pairs[1], minlength=len(mentions))
        self._counts = {"list": self._like(np.array(counts)), "set": self._like(distinct)}

    @cached_property
    def _search(self) -> Search:
        return self._find(self.embeddings)

    def _like(self, values: Any) -> Array:
        return like(values, self.embeddings)

    def __len__(self) -> int:
        return len(self.mentions)

    def named(self) -> LabelledCaptions:
        """Those that name at least one label."""
        rows = [i for i, labels in enumerate(self.mentions) if labels]
        if len(rows) == len(self):
            return self
        texts, mentions = [self.texts[i] for i in rows if self.texts], [self.mentions[i] for i in rows]
        return LabelledCaptions(self.embeddings[self._like(rows)], mentions, self.n_labels, self._find, texts)

    def nearest(self, features: Array, n: int) -> Array:
        """Indices (..., n) of the captions most similar to features (..., D), nearest first; exact."""
        return self._search(features, n)[1]

    def k(self, caption: Array, count: Literal["set", "list"] = "set") -> Array:
        """How many labels each caption names: as a set (paper) or counting repeats (released)."""
        return self._counts[count][caption]

    def nearest_counts(self, views: Array) -> Array:
        """The size (..., N) of each view's weak label set: that of the caption nearest to it (..., N, D)."""
        return self.k(self.nearest(views, 1)[..., 0])

    def votes(self, features: Array, n: int, scale: float) -> Array:
        """Share (..., C) of the n captions nearest to features (..., D) that name each label, nearer ones more."""
        similarity, near = self._search(features, n)
        weight = softmax(scale * similarity)
        return (weight[..., None, :] @ self.multi_hot(near))[..., 0, :]

    def shares(self, features: Array, scale: float) -> Array:
        """Share (B, C) of all captions, weighted by similarity to a feature (B, D), that name each label."""
        weight = softmax(scale * features @ self.embeddings.T)  # (B, K)
        parts = [
            sum_by(weight[:, self._caption[i : i + PAIRS]], self._label[i : i + PAIRS], self.n_labels)
            for i in range(0, max(1, len(self._caption)), PAIRS)
        ]
        return sum(parts[1:], parts[0])

    @cached_property
    def spoken_of(self) -> Array:
        """Which labels (C,) some caption names."""
        return self._like(np.isin(np.arange(self.n_labels), self._pairs[0]))

    @cached_property
    def means(self) -> Array:
        """Means (C, D), unit, of the captions that name each label; zero if none does."""
        xp = array_namespace(self.embeddings)
        ends = np.searchsorted(self._pairs[0], np.arange(self.n_labels + 1)).tolist()
        total, captions = [], self._like(self._pairs[1])
        for start, end in pairwise(ends):
            rows = (captions[i : min(i + ROWS, end)] for i in range(start, end, ROWS))
            total.append(sum((xp.sum(self.embeddings[own], axis=0) for own in rows), 0 * self.embeddings[0]))
        return normalize(xp.stack(total))

    def speakers(self, feature: Array, label: int, n: int = 3) -> list[tuple[str, float]]:
        """The captions nearest to a feature (D,) that name a label, and how near each is; nearest first."""
        rows = self._pairs[1][self._pairs[0] == label]
        near = to_numpy(self.embeddings[self._like(rows)] @ feature)  # (naming it,)
        found: dict[str, float] = {}
        for row in np.argsort(-near, kind="stable").tolist():
            found.setdefault(self.texts[rows[row]], float(near[row]))
            if len(found) == n:
                break
        return list(found.items())

    def multi_hot(self, caption: Array) -> Array:
        """Label sets (..., C) of captions (...) as zeros and ones."""
        return multi_hot(self._members[caption], self.n_labels + 1)[..., :-1]


def label_captions(
    labels: LabelSet, backbone: Backbone, base: CaptionBase, *, apart: bool = False
) -> LabelledCaptions:
    """A base's captions with the labels each names, plus composed ones for labels that none of them names.

    The last few are kept: several methods of one run ask for the same.

    Args:
        apart: look for each label as if there were no other, and compose nothing: what names a label then does not
            depend on the rest of the list.
    """
    base.check_backbone(backbone)
    tricks = ",".join(sorted(backbone.acceleration.tricks))  # they choose the search
    wanted = (labels, base.digest, backbone.text_fingerprint, str(backbone.device), tricks, apart)
    for key, found in tuple(_lately):  # a copy, as other threads add to it
        if key == wanted:
            return found
    made = _label(labels, backbone, base, apart)
    _lately.append((wanted, made))
    return made


def _label(labels: LabelSet, backbone: Backbone, base: CaptionBase, apart: bool) -> LabelledCaptions:
    mentions = label_matches(base.texts, labels, duplicates=True, apart=apart)
    texts, embeddings = list(base.texts), base.embeddings
    missing = sorted(set(range(len(labels))).difference(*mentions))
    if missing and not apart:
        per_label = max(2, min(PER_LABEL, COMPOSED_AT_MOST // len(missing)))
        composed = compose_captions(labels, missing, per_label)
        mentions += [list(labels_of) for _, labels_of in composed]
        said = [text for text, _ in composed]
        embeddings = np.concatenate([embeddings, to_numpy(backbone.encode_texts(said))])
        texts += said
    search = backbone.acceleration.search
    made = LabelledCaptions(backbone.asarray(embeddings), mentions, len(labels), search, texts)
    made.composed = len(made) - len(base.texts)
    return made
