"""Maps of photos before the last convolution of the image tower, with what is known of every noun in them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

INDEX, TABLES, MAPS = "index.json", "tables.safetensors", "maps.f16"
CELLS, CHANNELS = 81, 352
Rows = NDArray[np.int64]


@dataclass
class Maps:
    """Maps of labeled photos, then of captioned ones, then of ImageNet's, with their targets and texts.

    Args:
        nouns: the label set.
        kept: half-precision maps (n, 81, 352), read from disk as needed.
        tables: labels (n, nouns) and their reliability; weights of the nouns.
        texts: features of the nouns in seven templates, of ImageNet's classes and of the captions; the logit scale.
        rows: labeled photos to train on; `shares`: how likely each is drawn.
    """

    nouns: list[str]
    kept: NDArray[np.float16]
    tables: dict[str, Tensor]
    texts: dict[str, Tensor]
    sizes: tuple[int, int, int]
    rows: Rows
    shares: NDArray[np.float64]
    held: Rows
    held_captioned: Rows

    @classmethod
    def open(cls, folder: Path, without: Collection[str] = ()) -> Maps:
        """Open what the command wrote.

        Args:
            without: labels whose photos are left out.
        """
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        tables = load_file(folder / TABLES)
        labeled, captioned, samples = index["sizes"]
        kept = np.memmap(
            folder / MAPS, np.float16, "r", shape=(labeled + captioned + samples, CELLS, CHANNELS)
        )
        held = np.array(index["held"], np.int64)
        out = torch.zeros(labeled, dtype=torch.bool)
        for name in without:
            out |= tables["labels"][:labeled, index["nouns"].index(name)] == 1
        rows = np.setdiff1d(np.flatnonzero(~out.numpy()), held)
        shares = tables["shares"].double().numpy()[rows]
        names = ("simple", "classes", "captions", "scale")
        texts = {name: tables.pop(name).float() for name in names}
        return cls(
            index["nouns"], kept, tables, texts, (labeled, captioned, samples), rows, shares / shares.sum(), held,
            np.array(index["held_captioned"], np.int64),
        )  # fmt: skip

    @property
    def first_captioned(self) -> int:
        """The row of the first captioned photo."""
        return self.sizes[0]

    @property
    def weights(self) -> Tensor:
        """(nouns,), larger for rare ones."""
        return self.tables["weights"]

    @property
    def often(self) -> NDArray[np.float64]:
        """(nouns,) how often each is on a list."""
        found: NDArray[np.float64] = self.tables["often"].double().numpy()
        return found

    @property
    def similarity(self) -> NDArray[np.float32]:
        """(nouns, nouns) cosines of their meanings."""
        found: NDArray[np.float32] = self.tables["similarity"].float().numpy()
        return found

    def read(self, rows: Rows) -> Tensor:
        """Some maps (n, 81, 352)."""
        order = np.argsort(rows)
        found = np.empty((len(rows), CELLS, CHANNELS), np.float32)
        found[order] = self.kept[rows[order]]  # from the disk in order
        return torch.from_numpy(found)

    def targets(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Whether each noun holds of some photos, and how reliable that is (n, nouns)."""
        index = torch.from_numpy(rows)
        return (self.tables["labels"][index] == 1).float(), self.tables["certain"][index].float()

    def importance(self, value: Tensor) -> Tensor:
        """Weight of each target by the noun's rarity."""
        return torch.where(value > 0.5, self.weights, self.weights * self.tables["denied_more"])

    def drawn(self, n: int, captioned: float, samples: float, host: np.random.Generator) -> tuple[Rows, Rows]:
        """Rows of a batch, the captioned photos last, and the numbers of these."""
        with_text, more = round(n * captioned), round(n * samples)
        free = np.setdiff1d(np.arange(self.sizes[1]), self.held_captioned)
        texts = host.choice(free, with_text, replace=False)
        first = host.choice(self.rows, n - with_text - more, p=self.shares)
        imagenet = host.integers(self.sizes[2], size=more) + self.sizes[0] + self.sizes[1]
        return np.concatenate([first, imagenet, texts + self.first_captioned]), texts
