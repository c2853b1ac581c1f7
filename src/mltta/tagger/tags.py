"""What is said of one image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Tags(list[dict[str, Any]]):
    """All labels of one image as ``[{"label": …, "score": …}, …]``, best first, and which of them are shown.

    ``present`` names the labels shown, ``shown`` lists them with their scores. ``image`` is where the image came from;
    ``error`` says why there are no tags, if there are none. With ``Tagger(where=True)``, ``where`` maps each label
    shown to a grid (16, 16) from 0 to 1: how much each part of the photo speaks for it. With ``Tagger(explain=True)``,
    ``captions`` maps each label shown to the captions that speak for it, each with its similarity to the photo.
    """

    def __init__(
        self,
        items: Iterable[dict[str, Any]] = (),
        *,
        present: Sequence[str] = (),
        image: str = "",
        error: str | None = None,
        where: Mapping[str, NDArray[np.float32]] | None = None,
        captions: Mapping[str, Sequence[tuple[str, float]]] | None = None,
    ):
        super().__init__(items)
        self.present = list(present)
        self.image = image
        self.error = error
        self.where = dict(where or {})
        self.captions = dict(captions or {})

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The labels shown with their scores, best first."""
        here = set(self.present)
        return [item for item in self if item["label"] in here]

    def top(self, k: int | None = None, threshold: float | None = None) -> list[dict[str, Any]]:
        """The k best labels, or those that score at least ``threshold``, whatever is shown."""
        return [item for item in self[:k] if threshold is None or item["score"] >= threshold]

    def record(self) -> dict[str, Any]:
        """What files hold of it, in plain data: the image, and the labels shown or the error."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        return {"image": self.image, "present": self.present, "labels": self.shown}
