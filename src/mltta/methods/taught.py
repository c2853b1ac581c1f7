"""Labels taught by examples: a small linear head per label, added to the log-odds of its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from mltta.arrays import Array, like, normalize
from mltta.errors import ConfigError, WeightsError
from mltta.images.specs import AnySpec, LocalSpec
from mltta.labels import LabelSet
from mltta.labels.label_files import FORMAT
from mltta.methods.base import Emits, Method
from mltta.model.encoded import Encoded
from mltta.storage.reading import reading
from mltta.storage.tensors import from_bytes, to_bytes

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Heads:
    """Heads of L taught labels. The log-odds of a label are

    ``text · (log-odds of its text) + whole · x + max(window · x_i) + bias``

    where x is the whole photo and x_i are its windows.
    """

    labels: tuple[str, ...]
    #: what they were taught with: model, fingerprints, views, and the number of examples per label
    about: Mapping[str, Any]
    text: Floats  # (L,)
    whole: Floats  # (L, D)
    window: Floats  # (L, D)
    bias: Floats  # (L,)

    def to_bytes(self, labels: LabelSet) -> bytes:
        """A file of these heads and the label list that they belong to."""
        tensors = {name: getattr(self, name) for name in ("text", "whole", "window", "bias")}
        entries = zip(labels.names, labels.texts, labels.synonyms, labels.titles or labels.names, strict=True)
        held = [dict(zip(("name", "text", "synonyms", "title"), own, strict=True)) for own in entries]
        about = {"format": FORMAT, "labels": held, "taught": self.labels, "about": dict(self.about)}
        return to_bytes(tensors, {name: json.dumps(value) for name, value in about.items()})

    @classmethod
    def of(cls, content: bytes) -> Heads:
        """Read a file of heads."""
        tensors, about = from_bytes(content, "the file of taught labels")
        with reading("the file of taught labels", WeightsError, "run mltta teach again"):
            heads = cls(tuple(json.loads(about["taught"])), dict(json.loads(about["about"])), **tensors)
            if (
                not len(heads.labels)
                == len(heads.text)
                == len(heads.bias)
                == len(heads.whole @ heads.window.T)
            ):
                raise ValueError("its heads do not fit its labels")
        return heads


def summary(encoded: Encoded, needs: tuple[AnySpec, ...]) -> tuple[Array, Array]:
    """The whole photo (B, D) and its windows (B, L, D), as heads see them: unit vectors."""
    first, *others = (encoded.features(spec)[:, 0] for spec in needs)
    whole = normalize(sum(others, first))
    spec = needs[len(needs) // 2]
    return whole, encoded.local(spec).windows if isinstance(spec, LocalSpec) else encoded.features(spec)


def fingerprint(method: Method) -> dict[str, Any]:
    """What heads depend on besides the photos."""
    backbone = method.problem.backbone
    assert backbone is not None
    weights, views = [backbone.image_fingerprint, backbone.text_fingerprint], list(map(repr, method.needs))
    return {"model": backbone.name, "weights": weights, "method": method.name, "views": views}


class Taught(Method):
    """A method whose taught labels also use their heads."""

    array_api = True

    def __init__(self, inner: Method, content: bytes, names: tuple[str, ...]):
        if inner.emits != "odds" or inner.online or inner.transductive:
            raise ConfigError(f"taught labels need calibrated scores: use auto, not {inner.name}")
        self.inner, self.heads = inner, Heads.of(content)
        self.name, self.requires, self.captions = inner.name, inner.requires, inner.captions  # type: ignore[misc]
        self.text, self.logit_scale = inner.text, inner.logit_scale
        self.problem, self.config = inner.problem, inner.config
        own, wanted = self.heads.about, fingerprint(inner)
        if differ := [name for name in ("weights", "method", "views") if own.get(name) != wanted[name]]:
            made = f"{own.get('model')} and {own.get('method')}"
            raise ConfigError(
                f"the labels were taught with {made}, but the {differ[0]} differ: teach them again"
            )
        self._columns = [names.index(label) for label in self.heads.labels]

    @property
    def needs(self) -> tuple[AnySpec, ...]:
        return self.inner.needs

    @property
    def emits(self) -> Emits:
        return "odds"

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        return {name: self._with_heads(odds, encoded) for name, odds in self.inner.branches(encoded).items()}

    def where(self, encoded: Encoded) -> Array | None:
        return self.inner.where(encoded)

    def _with_heads(self, odds: Array, encoded: Encoded) -> Array:
        xp, heads = array_namespace(odds), self.heads
        whole, windows = summary(encoded, self.needs)
        best = xp.max(windows @ like(heads.window, windows).T, axis=1)
        text, bias = (like(part, odds) for part in (heads.text, heads.bias))
        found = text * odds[:, self._columns] + whole @ like(heads.whole, whole).T + best + bias
        odds = xp.asarray(odds, copy=True)
        odds[:, self._columns] = found
        return odds
