"""Boolean queries over labels: ``dog and beach not person``, ``(cat or dog) and not "salt and pepper"``."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from mltta.errors import ConfigError
from mltta.labels import LabelSet

_TOKEN = re.compile(r'"[^"]+"|[()]|[^\s()"]+')
_WORDS = ("and", "or", "not", "(", ")")
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Query:
    """A query as a tree of Python's ``and``, ``or`` and ``not`` over the columns of labels."""

    tree: ast.expr

    def evaluate(self, scores: Floats) -> Floats:
        """How well photos (N,) meet it: ``and`` is the worst score (N, C), ``or`` the best, ``not`` 1 minus it."""
        return _evaluate(self.tree, scores)

    def matches(self, scores: Floats, threshold: float) -> NDArray[np.bool_]:
        """Which photos (N,) meet it, if a label is present from this score (N, C)."""
        return self.evaluate((scores >= np.float32(threshold)).astype(np.float32)) > 0.5


def _evaluate(tree: ast.expr, scores: Floats) -> Floats:
    if isinstance(tree, ast.Constant):
        return np.asarray(scores[:, int(str(tree.value))])
    if isinstance(tree, ast.UnaryOp):
        return 1 - _evaluate(tree.operand, scores)
    assert isinstance(tree, ast.BoolOp)
    parts = [_evaluate(part, scores) for part in tree.values]
    return reduce(np.minimum if isinstance(tree.op, ast.And) else np.maximum, parts)


def parse(text: str, labels: LabelSet) -> Query:
    """Parse labels, ``and``, ``or``, ``not``, parentheses, and quotes around labels that contain these words.

    ``and`` may be omitted before ``not`` and parentheses.
    """
    said: list[str] = []
    label: list[str] = []
    for token in (*_TOKEN.findall(text), ""):
        word = token.casefold()
        if word and word not in _WORDS:
            label.append(token.strip('"'))
            continue
        if label:
            said.append(str(labels.index(" ".join(label))))
            label.clear()
        if word in ("not", "(") and said and said[-1] not in _WORDS[:4]:
            said.append("and")
        said.append(word)
    try:
        tree = ast.parse(" ".join(said).strip(), mode="eval").body
        _evaluate(tree, np.zeros((1, len(labels)), np.float32))
    except (SyntaxError, AssertionError, ValueError, RecursionError, MemoryError):
        how = "write it like: dog and (beach or sea) not person"
        raise ConfigError(f"cannot read the query {text[:200]!r}; {how}") from None
    return Query(tree)
