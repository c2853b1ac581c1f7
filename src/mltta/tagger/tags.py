"""What is said of one image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Tags(list[dict[str, Any]]):
    """All labels of one image as ``[{"label": …, "score": …}, …]``, best first, plus those judged present.

    ``present`` lists the labels the image shows; ``image`` is where it came from; ``error`` says why there
    are no tags, when there are none. ``where`` has, for a tagger that was asked to tell, by label present a grid
    (16, 16) from 0 to 1: how much each part of the photo speaks for it. ``captions`` has, for one that was asked to
    explain, by label present the captions that spoke for it, each with its similarity to the photo.
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

    def top(self, k: int | None = None, threshold: float | None = None) -> list[dict[str, Any]]:
        """The k best labels, or those that score at least ``threshold``."""
        return [item for item in self[:k] if threshold is None or item["score"] >= threshold]
