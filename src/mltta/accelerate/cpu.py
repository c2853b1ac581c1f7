"""What is sped up on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from mltta.accelerate.allocation import keep_freed_memory
from mltta.accelerate.folding import fold_norms
from mltta.accelerate.labels import PackedLabelEncoder
from mltta.accelerate.search import FaissSearch
from mltta.model.acceleration import Acceleration
from mltta.model.label_encoder import LabelEncoder
from mltta.model.prompts import Prompts
from mltta.model.search import Search
from mltta.model.text_tower import TextTower


class CpuAcceleration(Acceleration):
    """Memory kept, norms folded, the labels' context run once, captions by the million searched by FAISS."""

    def start(self, visual: torch.nn.Module) -> None:
        if "allocation" in self.tricks:
            keep_freed_memory()
        if "folding" in self.tricks:
            fold_norms(visual)

    def label_encoder(
        self, tower: TextTower, prompts: Prompts, context: Tensor | None, features: Tensor | None = None
    ) -> LabelEncoder:
        kind = PackedLabelEncoder if "shared-prefix" in self.tricks else LabelEncoder
        return kind(tower, prompts, context, features)

    def search(self, base: Tensor) -> Search:
        return FaissSearch(base) if "search" in self.tricks else Search(base)
