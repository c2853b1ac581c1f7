"""Captions with the labels of one set that each of them names: what is retrieved from."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mltta.captions.compose import compose_captions
from mltta.captions.nouns import label_matches
from mltta.captions.store import CaptionBase
from mltta.errors import CaptionError
from mltta.labels import LabelSet
from mltta.model.search import Search

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

#: sentences composed for a label that no caption mentions, fewer when there are thousands of labels
PER_LABEL, COMPOSED_AT_MOST = 16, 8192
# Pairs of a caption and a label that are added up at once.
PAIRS_AT_ONCE = 2**18
# Embeddings that are added up at once.
ROWS_AT_ONCE = 2**14

_lately_lock = threading.Lock()
_lately: deque[tuple[tuple[LabelSet, str, str, str, str, bool], LabelledCaptions]] = deque(maxlen=4)


class LabelledCaptions:
    """Captions with the labels of one set that each of them names, perhaps none: what is retrieved from."""

    def __init__(
        self,
        embeddings: Tensor,
        mentions: Sequence[Sequence[int]],
        n_labels: int,
        search: Callable[[Tensor], Search] = Search,
        texts: Sequence[str] = (),
    ):
        """Args:
        embeddings: (K, D) unit features.
        mentions: for each caption the labels it mentions, in order, repeats kept.
        n_labels: C.
        search: finds the nearest among unit vectors.
        texts: what the captions say, where somebody may want to read it.
        """
        if len(mentions) != embeddings.shape[0] or not len(mentions):
            raise CaptionError(f"{embeddings.shape[0]} caption embeddings for {len(mentions)} label lists")
        self.embeddings = embeddings.float()
        self._find, self._search = search, search(self.embeddings)
        self.mentions = mentions
        self.n_labels = n_labels
        self.texts = texts
        #: how many of them, at the end, are composed here and say nothing of which labels go together
        self.composed = 0
        device = embeddings.device
        width = max(1, *map(len, mentions))
        padded = [[*m, *[n_labels] * (width - len(m))] for m in mentions]
        self._members = torch.tensor(
            padded, dtype=torch.int32, device=device
        )  # (K, longest), n_labels = no label
        self._k_list = torch.tensor([len(m) for m in mentions], device=device)
        self._k_set = torch.tensor([len(set(m)) for m in mentions], device=device)

    def __len__(self) -> int:
        return self.embeddings.shape[0]

    def named(self) -> LabelledCaptions:
        """Those that name at least one label."""
        rows = [i for i, labels in enumerate(self.mentions) if labels]
        if len(rows) == len(self):
            return self
        at = torch.tensor(rows, device=self.embeddings.device)
        texts = [self.texts[i] for i in rows] if self.texts else ()
        mentions = [self.mentions[i] for i in rows]
        return LabelledCaptions(self.embeddings[at], mentions, self.n_labels, self._find, texts)

    def nearest(self, features: Tensor, n: int) -> Tensor:
        """Indices (..., n) of the captions most similar to features (..., D), nearest first; exact."""
        return self._search(features, n)[1]

    def k(self, caption: Tensor, count: Literal["set", "list"] = "set") -> Tensor:
        """How many labels each caption names: as a set (paper) or counting repeats (released)."""
        return (self._k_set if count == "set" else self._k_list)[caption]

    def votes(self, features: Tensor, n: int, scale: float) -> Tensor:
        """Share (..., C) of the n captions nearest to features (..., D) that name each label, nearer ones more."""
        similarity, near = self._search(features, n)
        weight = (scale * similarity).softmax(dim=-1)
        return (weight.unsqueeze(-2) @ self.multi_hot(near)).squeeze(-2)

    def shares(self, features: Tensor, scale: float) -> Tensor:
        """Share (B, C) of all captions, each by its likeness to a feature (B, D), that names each label."""
        weight = (scale * features @ self.embeddings.T).softmax(dim=-1)  # (B, K)
        found = torch.zeros(len(features), self.n_labels, device=features.device)
        for start in range(0, len(self._pairs[0]), PAIRS_AT_ONCE):
            caption, label = (part[start : start + PAIRS_AT_ONCE] for part in self._pairs)
            found.index_add_(1, label, weight[:, caption])
        return found

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Every caption with every label that it names, each pair once."""
        pairs = [(i, label) for i, labels in enumerate(self.mentions) for label in dict.fromkeys(labels)]
        caption, label = torch.tensor(pairs, dtype=torch.long).view(-1, 2).T.to(self.embeddings.device)
        return caption, label

    @cached_property
    def spoken_of(self) -> Tensor:
        """Which labels (C,) some caption names."""
        named = torch.zeros(self.n_labels, dtype=torch.bool, device=self.embeddings.device)
        named[self._pairs[1]] = True
        return named

    @cached_property
    def means(self) -> Tensor:
        """Means (C, D), unit, of the captions that name each label; zero where none does."""
        # on a CPU a sum has one order
        said, captions, labels = self.embeddings.cpu(), *(part.cpu() for part in self._pairs)
        total = torch.zeros(self.n_labels, said.shape[1])
        for start in range(0, len(labels), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            total.index_add_(0, labels[rows], said[captions[rows]])
        return F.normalize(total, dim=-1).to(self.embeddings.device)

    def speakers(self, feature: Tensor, label: int, n: int = 3) -> list[tuple[str, float]]:
        """The captions nearest to a feature (D,) that name a label, and how near each is; nearest first."""
        caption, named = self._pairs
        rows = caption[named == label]
        near = self.embeddings[rows] @ feature.to(self.embeddings)  # (naming it,)
        found: dict[str, float] = {}
        for row in near.argsort(descending=True, stable=True).tolist():
            found.setdefault(self.texts[int(rows[row])], float(near[row]))
            if len(found) == n:
                break
        return list(found.items())

    def multi_hot(self, caption: Tensor) -> Tensor:
        """Label sets (..., C) of captions (...) as zeros and ones."""
        members = self._members[caption].long()
        hot = torch.zeros((*caption.shape, self.n_labels + 1), device=members.device)
        return hot.scatter_(-1, members, 1.0)[..., :-1]


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
    with _lately_lock:
        for key, found in _lately:
            if key == wanted:
                return found
    made = _label(labels, backbone, base, apart)
    with _lately_lock:
        _lately.append((wanted, made))
    return made


def _label(labels: LabelSet, backbone: Backbone, base: CaptionBase, apart: bool) -> LabelledCaptions:
    mentions = label_matches(base.texts, labels, duplicates=True, apart=apart)
    parts, texts = [base.embeddings.float()], list(base.texts)
    named = {label for labels_of in mentions for label in labels_of}
    missing = [i for i in range(len(labels)) if i not in named]
    if missing and not apart:
        per_label = max(2, min(PER_LABEL, COMPOSED_AT_MOST // len(missing)))
        composed = compose_captions(labels, missing, per_label)
        mentions += [list(labels_of) for _, labels_of in composed]
        said = [text for text, _ in composed]
        parts.append(backbone.encode_texts(said))
        texts += said
    embeddings = torch.cat(parts).to(backbone.device)
    made = LabelledCaptions(embeddings, mentions, len(labels), backbone.acceleration.search, texts)
    made.composed = len(made) - len(base.texts)
    return made
