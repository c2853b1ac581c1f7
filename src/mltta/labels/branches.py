"""Which labels of the default list to show together: no near-duplicates, and of each branch the most specific ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mltta.labels.sets import label_key
from mltta.labels.tree import Tree, everyday_tree


class Branches:
    """The labels of a list as places in the tree."""

    def __init__(self, names: Sequence[str], tree: Tree | None = None):
        self.tree, self.keys = tree or everyday_tree(), [label_key(name) for name in names]
        self.row = {key: i for i, key in enumerate(self.keys)}

    def __call__(self, scores: NDArray[np.float32], confident: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which of the confident labels (B, C) to show.

        Of the kinds of one thing and of near-duplicates only the best is shown. What is shown is the most specific
        label of each branch, and its parent.
        """
        shown = np.zeros_like(confident)
        for photo, (score, own) in enumerate(zip(scores, confident, strict=True)):
            shown[photo, self._shown(score, np.flatnonzero(own).tolist())] = True
        return shown

    def instead(self, score: NDArray[np.float32]) -> int:
        """The label to name if none is confident: the best one, by its parent if it has one."""
        best = int(np.argmax(score))
        parent = self.tree.parents.get(self.keys[best], "")
        return self.row.get(parent, best)

    def _shown(self, score: NDArray[np.float32], confident: list[int]) -> list[int]:
        tree = self.tree
        kept: dict[str, None] = {}
        for key in (self.keys[i] for i in sorted(confident, key=lambda i: -score[i])):
            rivals = self._twins.get(key, frozenset())
            below = tree.below(key)
            if not any(other in rivals and other not in below for other in kept):
                kept[key] = None
        # what is below a rejected label goes with it
        rejected = {self.keys[i] for i in confident} - kept.keys()
        kept = {key: None for key in kept if not rejected.intersection(tree.above(key))}
        specific = [key for key in kept if not any(other in tree.below(key) for other in kept)]
        parents = {tree.parents.get(key, "") for key in specific}
        return [self.row[key] for key in kept if key in parents or key in specific]

    @cached_property
    def _twins(self) -> dict[str, frozenset[str]]:
        """For each label, those that are not shown beside it: other kinds of the same thing, and near-duplicates."""
        tree = self.tree
        found: dict[str, set[str]] = {key: set(tree.twins.get(key, ())) for key in self.keys}
        for key in self.keys:
            parent = tree.parents.get(key, "")
            if parent in tree.kinds:
                found[key] |= {other for other in self.keys if tree.parents.get(other) == parent} - {key}
            # "toy car" and "car", "hot dog" and "dog": one thing has one of these names
            head = key.partition(" ")[2]
            if head in self.row and head not in tree.above(key):
                found[key].add(head)
                found[head].add(key)
        return {key: frozenset(own) for key, own in found.items()}
