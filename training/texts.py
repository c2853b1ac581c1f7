"""Sentences as tokens on the device."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor

CHUNK = 4000  # sentences per task of a process

_tokenizer: SimpleTokenizer | None = None


def _start(bpe: str) -> None:
    global _tokenizer
    _tokenizer = SimpleTokenizer(bpe)


def _ids(texts: list[str]) -> list[list[int]]:
    assert _tokenizer is not None
    return [_tokenizer.encode(text) for text in texts]


def token_ids(bpe: Path, texts: list[str]) -> list[list[int]]:
    """Tokenize texts without start and end tokens, on all cores. Call before using the device."""
    chunks = [texts[i : i + CHUNK] for i in range(0, len(texts), CHUNK)]
    if len(chunks) < 8 or "fork" not in multiprocessing.get_all_start_methods():
        _start(str(bpe))
        return [ids for chunk in chunks for ids in _ids(chunk)]
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), _start, (str(bpe),)) as pool:
        return [ids for chunk in pool.map(_ids, chunks, chunksize=1) for ids in chunk]


class Texts:
    """Tokenized texts on the device; lengths stay on the host, to truncate batches without a sync."""

    def __init__(
        self, ids: Sequence[Sequence[int]], start: int, end: int, context: int, device: torch.device
    ) -> None:
        self.lengths = np.array([min(len(i) + 2, context) for i in ids])
        tokens = np.zeros((len(ids), context), np.int32)
        for row, own in enumerate(ids):
            cut = [start, *own[: context - 2], end]
            tokens[row, : len(cut)] = cut
        self.tokens = torch.from_numpy(tokens).to(device)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: NDArray[Any]) -> tuple[Tensor, int]:
        """Tokens of some rows, and the maximum length, rounded up to one of a few values."""
        index = torch.from_numpy(np.asarray(rows, np.int64)).to(self.tokens.device, non_blocking=True)
        length = -(-int(self.lengths[rows].max()) // 8) * 8
        return self.tokens[index], min(length, self.tokens.shape[1])
