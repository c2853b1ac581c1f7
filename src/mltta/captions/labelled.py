"""Captions with the labels of a label set that each of them names, for retrieval."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from mltta.arrays import Array, like, multi_hot, normalize, on_grid, softmax, sum_by, to_numpy
from mltta.captions.compose import compose_captions
from mltta.captions.nouns import label_matches
from mltta.captions.store import CaptionBase
from mltta.errors import CaptionError
from mltta.labels import LabelSet
from mltta.model.search import Search

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: generated sentences per label that no caption mentions, fewer if there are thousands of labels
PER_LABEL, COMPOSED_AT_MOST = 16, 8192
# Maximum number of caption-label pairs and embeddings summed at once.
PAIRS, ROWS = 2**18, 2**14

_lately: deque[tuple[Any, LabelledCaptions]] = deque(maxlen=4)


class LabelledCaptions:
    """Captions with the labels of a label set that each of them names, if any, for retrieval.

    Arrays are NumPy or torch, on the device of the embeddings. Features must match.
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
        mentions: the labels that each caption mentions, in order, including repeats.
        n_labels: C.
        search: nearest-neighbour search among unit vectors.
        texts: the captions' texts, for display.
        """
        if len(mentions) != embeddings.shape[0] or not len(mentions):
            raise CaptionError(f"{embeddings.shape[0]} caption embeddings for {len(mentions)} label lists")
        xp = array_namespace(embeddings)
        self.embeddings = xp.astype(embeddings, xp.float32, copy=False)
        self._find = search
        self.mentions, self.n_labels, self.texts = mentions, n_labels, texts
        #: number of generated captions, at the end; they carry no information on label co-occurrence
        self.composed = 0
        counts = [len(m) for m in mentions]
        every = np.array([label for own in mentions for label in own], np.int64)
        members = np.full((len(mentions), max(1, *counts)), n_labels)  # n_labels means none
        members[np.arange(members.shape[1]) < np.array(counts)[:, None]] = every
        self._members = self._like(members.astype(np.int32))  # (K, longest)
        #: each label with each caption that names it, once, sorted by label
        pairs = np.unique(every * len(mentions) + np.repeat(np.arange(len(mentions)), counts))
        self._pairs = np.divmod(pairs, len(mentions))  # (P,) each
        # NumPy sums runs of one label; on a GPU, neighbours that add to the same sum are slow
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
        """The captions that name at least one label."""
        rows = [i for i, labels in enumerate(self.mentions) if labels]
        if len(rows) == len(self):
            return self
        texts, mentions = [self.texts[i] for i in rows if self.texts], [self.mentions[i] for i in rows]
        return LabelledCaptions(self.embeddings[self._like(rows)], mentions, self.n_labels, self._find, texts)

    def nearest(self, features: Array, n: int) -> Array:
        """Indices (..., n) of the captions most similar to features (..., D), nearest first; exact."""
        return self._search(features, n)[1]

    def k(self, caption: Array, count: Literal["set", "list"] = "set") -> Array:
        """Number of labels that each caption names: distinct (paper) or including repeats (released)."""
        return self._counts[count][caption]

    def nearest_counts(self, views: Array) -> Array:
        """The size (..., N) of each view's weak label set, from the caption nearest to the view (..., N, D)."""
        return self.k(self.nearest(views, 1)[..., 0])

    def votes(self, features: Array, n: int, scale: float) -> Array:
        """For each label, the similarity-weighted share (..., C) of the n captions nearest to features that name it."""
        similarity, near = self._search(features, n)
        weight = softmax(scale * similarity)
        return (weight[..., None, :] @ self.multi_hot(near))[..., 0, :]

    def shares(self, features: Array, scale: float) -> Array:
        """For each label, the share (B, C) of all captions that name it, weighted by similarity to a feature (B, D)."""
        # on a grid, so that a label's sum does not depend on the other labels
        weight = on_grid(softmax(scale * features @ self.embeddings.T), 24)  # (B, K)
        parts = [
            sum_by(weight[:, self._caption[i : i + PAIRS]], self._label[i : i + PAIRS], self.n_labels)
            for i in range(0, max(1, len(self._caption)), PAIRS)
        ]
        return sum(parts[1:], parts[0])

    @cached_property
    def spoken_of(self) -> Array:
        """Mask (C,) of labels that at least one caption names."""
        return self._like(np.isin(np.arange(self.n_labels), self._pairs[0]))

    @cached_property
    def means(self) -> Array:
        """Unit means (C, D) of the captions that name each label; zero if there are none."""
        xp = array_namespace(self.embeddings)
        ends = np.searchsorted(self._pairs[0], np.arange(self.n_labels + 1)).tolist()
        total, captions = [], self._like(self._pairs[1])
        for start, end in pairwise(ends):
            rows = (captions[i : min(i + ROWS, end)] for i in range(start, end, ROWS))
            total.append(sum((xp.sum(self.embeddings[own], axis=0) for own in rows), 0 * self.embeddings[0]))
        return normalize(xp.stack(total))

    def speakers(self, feature: Array, label: int, n: int = 3) -> list[tuple[str, float]]:
        """The captions that name a label and are nearest to a feature (D,), with their similarity, nearest first."""
        rows = self._pairs[1][self._pairs[0] == label]
        near = to_numpy(self.embeddings[self._like(rows)] @ feature)  # (captions naming it,)
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
    """Label the captions of a base, and add generated ones for labels that no caption names.

    The last few results are cached, because several methods of a run use the same.

    Args:
        apart: search for each label independently, and generate no captions: a label's captions then do not depend on
            the rest of the list.
    """
    base.check_backbone(backbone)
    tricks = ",".join(sorted(backbone.acceleration.tricks))  # they determine the search
    wanted = (labels, base.digest, backbone.text_fingerprint, str(backbone.device), tricks, apart)
    for key, found in tuple(_lately):  # copied, because other threads append
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
