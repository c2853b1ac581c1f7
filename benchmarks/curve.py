"""Fit the calibration of auto on annotated sources, and tell how it transfers to a source that was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mltta.methods.calibration import Calibration
from mltta.metrics import mean_average_precision, set_metrics

Floats = NDArray[np.float64]
#: strength of the prior that the offset of a label, or of a source that is not natural, is zero, in present labels
LABEL, SOURCE = 3.0, 3.0
ROUNDS = 25


@dataclass
class Evidence:
    """What a method says of a source: evidence (N, C, 3) of its labels, their words, and what is true (N, C)."""

    name: str
    evidence: NDArray[np.float32]
    words: Sequence[str]
    common: NDArray[np.float32]  # (C,) 1 for common objects
    truth: NDArray[np.int8]
    #: whether its photos show labels as often as photos of people do; folders of one label each have an own offset
    natural: bool = True

    def terms(self) -> Floats:
        """Inputs (N, C, 6) of the fit: those of the calibration, a constant, and whether a label is uncommon."""
        found = Calibration.terms(self.evidence.astype(np.float64))
        one = np.ones_like(found[0])
        return np.stack([*found, one, one * (1 - self.common)], axis=-1)

    def score(self, calibration: Calibration) -> Floats:
        """Scores (N, C), without what other labels of the tree add."""
        return _sigmoid(
            calibration(self.evidence.astype(np.float64)) + calibration.offsets(self.words, self.common)
        )


def fit(
    sources: Sequence[Evidence], half: bool = False, label: float = LABEL, source: float = SOURCE
) -> Calibration:
    """Maximum likelihood with equal weight per source; labels and sources have offsets around zero.

    Args:
        half: use only every second photo.
        label, source: strength of the priors.
    """
    names = sorted({word for one in sources for word in one.words})
    row = {word: i for i, word in enumerate(names)}
    parts = []
    for number, one in enumerate(sources):
        kept = one.truth >= 0
        if half:
            kept = kept.copy()
            kept[1::2] = False
        y = (one.truth[kept] == 1).astype(float)
        own = np.broadcast_to([row[word] for word in one.words], one.truth.shape)[kept]
        w = np.full(len(y), 200 / max(1.0, y.sum()))
        parts.append((one.terms()[kept], y, own, np.full(len(y), number), w))
    x, y, c, s, w = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    prior = np.array([1e9 if one.natural else source for one in sources])
    theta, labels, means = np.zeros(x.shape[1]), np.zeros(len(names)), np.zeros(len(sources))
    for _ in range(ROUNDS):
        p = _sigmoid(x @ theta + labels[c] + means[s])
        hessian = (x * (w * p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(theta))
        theta = theta - np.linalg.solve(hessian, x.T @ (w * (p - y)) + 1e-3 * theta)
        for offsets, group, strength in ((labels, c, label), (means, s, prior)):
            p = _sigmoid(x @ theta + labels[c] + means[s])
            slope = np.bincount(group, w * (p - y), len(offsets)) + strength * offsets
            bend = np.bincount(group, w * p * (1 - p), len(offsets)) + strength
            offsets -= np.clip(slope / bend, -1, 1)
    values = (float(value) for value in theta)
    return Calibration(*values, labels=dict(zip(names, labels.tolist(), strict=True)))


def error(score: Floats, truth: NDArray[np.int8], above: float = 0.1, bins: int = 15) -> float:
    """Expected calibration error over annotated pairs that score at least ``above``, in bins of equal mass."""
    kept = (truth >= 0) & (score >= above)
    if not kept.any():
        return 0.0
    p, y = score[kept], truth[kept] == 1
    order = np.argsort(p, kind="stable")
    parts = [own for own in np.array_split(order, bins) if len(own)]
    return float(sum(len(own) * abs(p[own].mean() - y[own].mean()) for own in parts) / len(p))


def report(
    sources: Sequence[Evidence], shown_from: float, **how: float
) -> tuple[Calibration, dict[str, list[float]]]:
    """Fit on all, and for each source: mAP, F1, error on photos that were not fitted, and error if it is left out."""
    found = fit(sources, **how)  # type: ignore[arg-type]
    halved = fit(sources, half=True, **how)  # type: ignore[arg-type]
    rows = {}
    for one in sources:
        others = fit([other for other in sources if other is not one], **how)  # type: ignore[arg-type]
        score, without = one.score(found), one.score(others)
        rows[one.name] = [
            float(mean_average_precision(score, one.truth)),
            float(set_metrics(score >= shown_from, one.truth).f1),
            float(set_metrics(without >= shown_from, one.truth).f1),
            error(one.score(halved)[1::2], one.truth[1::2]),
            error(without, one.truth),
            int(((without >= 0.1) & (one.truth >= 0)).sum()),
        ]
    return found, rows


def table(rows: dict[str, list[float]]) -> str:
    """The figures of `report`."""
    lines = ["source                    mAP     F1  left out  error  left out   pairs"]
    for name, (ap, f1, other, own, out, pairs) in rows.items():
        lines.append(f"{name:24s} {ap:5.2f}  {f1:.4f}    {other:.4f}  {own:.3f}     {out:.3f}  {pairs:6.0f}")
    return "\n".join(lines)


def with_model(calibration: Calibration, model: str, how: str) -> Calibration:
    """A fit, with what it is of."""
    return replace(calibration, model=model, how=how)


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))
