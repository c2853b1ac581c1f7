"""From evidence to log-odds: weights and one offset per label, fitted for a model and stored under its fingerprint."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mltta.arrays import Array, clamp
from mltta.storage.folders import MINI, cache_folder
from mltta.storage.reading import UNREADABLE

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone

log = logging.getLogger("mltta")
FORMAT = "mltta-calibration-1"
#: evidence of what is seen (the mean of mean and best) from which on log-odds grow faster
KNEE = -1.5


@dataclass(frozen=True)
class Calibration:
    """Log-odds are a weighted sum of the evidence, with a bend, and an offset of labels that were measured."""

    mean: float
    best: float
    votes: float
    bend: float
    base: float
    #: added to the log-odds of words that are not common objects, whose share of a view starts lower
    rare: float = 0.0
    #: the model it was fitted for, and how
    model: str = ""
    how: str = ""
    #: added to the log-odds of these words
    labels: dict[str, float] = field(default_factory=dict)

    def __call__(self, evidence: Array) -> Array:
        """Log-odds (...) of evidence (..., 3)."""
        terms = self.terms(evidence)
        weights = (self.mean, self.best, self.votes, self.bend)
        return self.base + sum(weight * term for weight, term in zip(weights, terms, strict=True))

    @staticmethod
    def terms(evidence: Array) -> tuple[Array, Array, Array, Array]:
        """What is weighted: mean share, best share, captions, and what is seen beyond the knee."""
        mean, best, votes = (evidence[..., i] for i in range(3))
        return mean, best, votes, clamp((mean + best) / 2 - KNEE, 0)

    def offsets(self, words: Sequence[str], common: NDArray[np.float32]) -> NDArray[np.float32]:
        """The offset of each of these words, which are common objects (1) or not (0)."""
        found: NDArray[np.float32] = np.array([self.labels.get(word, 0.0) for word in words], np.float32)
        found += np.float32(self.rare) * (1 - common)
        return found

    @classmethod
    def of(cls, backbone: Backbone | None) -> Calibration:
        """The calibration of a model: the one fitted for it, or that of the embedded model without its offsets."""
        own = load(MINI / "calibration.json")
        assert own is not None
        if backbone is None:
            return own
        name = fingerprint(backbone)
        if own.model == name:
            return own
        found = load(kept_file(name))
        if found is None:
            log.debug("no calibration for %s; using that of the embedded model", backbone.name)
            return replace(own, model="", labels={})
        return found

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()}
        rounded["labels"] = {word: round(value, 2) for word, value in sorted(self.labels.items())}
        text = json.dumps({"format": FORMAT, **rounded}, indent=0, ensure_ascii=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")


def load(file: Path) -> Calibration | None:
    """Read a file that `save` wrote; None if there is none or it is damaged."""
    try:
        held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if held.pop("format") != FORMAT:
            return None
        return Calibration(**held)
    except (OSError, KeyError, TypeError, *UNREADABLE):
        return None


def fingerprint(backbone: Backbone) -> str:
    """What a calibration belongs to: both towers, and learned prompts."""
    own = f"{backbone.image_fingerprint}-{backbone.text_fingerprint}"
    return own + (f"-{backbone.prompts.digest}" if backbone.prompts is not None else "")


def kept_file(name: str) -> Path:
    """The file of a model's calibration on this machine."""
    return cache_folder() / "calibration" / f"{name}.json"
