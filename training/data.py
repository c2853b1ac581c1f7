"""What a training step is made of: images in memory, crops cut on the device, texts as tokens."""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image
from torch.nn import functional as F


def read_index(pack: Path) -> dict[str, Any]:
    """Names, captions and sentences, as `prepare.py` wrote them."""
    with gzip.open(pack / "index.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


def decode(path: Path, index: Sequence[tuple[str, int, int]], side: int) -> torch.Tensor:
    """All images of a set squashed to (n, 3, side, side) bytes."""
    data = path.read_bytes()
    out = torch.empty(len(index), 3, side, side, dtype=torch.uint8)

    def one(row: int) -> None:
        _, start, size = index[row]
        image = Image.open(io.BytesIO(data[start : start + size])).convert("RGB")
        pixels = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC))
        out[row] = torch.from_numpy(pixels.copy()).permute(2, 0, 1)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(len(index))))
    return out


_tokenizer: SimpleTokenizer | None = None


def _start(bpe: str) -> None:
    global _tokenizer
    _tokenizer = SimpleTokenizer(bpe)


def _ids(texts: list[str]) -> list[list[int]]:
    assert _tokenizer is not None
    return [_tokenizer.encode(text) for text in texts]


def token_ids(bpe: Path, texts: list[str]) -> list[list[int]]:
    """Token ids of each text without start and end token, on all cores. Call before the device is used."""
    chunks = [texts[i : i + 2000] for i in range(0, len(texts), 2000)]
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), _start, (str(bpe),)) as pool:
        return [ids for chunk in pool.map(_ids, chunks, chunksize=1) for ids in chunk]


class Texts:
    """Tokenised texts on the device; lengths stay on the host, to cut a batch short without a sync."""

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

    def batch(self, rows: np.ndarray) -> tuple[torch.Tensor, int]:
        """Tokens of some rows, and the length of the longest, rounded up to few different ones."""
        index = torch.from_numpy(np.asarray(rows, np.int64)).to(self.tokens.device, non_blocking=True)
        length = -(-int(self.lengths[rows].max()) // 8) * 8
        return self.tokens[index], min(length, self.tokens.shape[1])


def crops(
    images: torch.Tensor, size: int, smallest: float, whole: float, rng: torch.Generator
) -> torch.Tensor:
    """Random resized crops with flips and light colour changes of (n, 3, s, s) bytes, in [-1, 1].

    Args:
        smallest: least share of the area a crop covers.
        whole: probability of taking the whole frame, as at test time.
    """
    n, device = len(images), images.device

    def uniform(low: float, high: float) -> torch.Tensor:
        return torch.rand(n, generator=rng, device=device) * (high - low) + low

    area, ratio = uniform(smallest, 1.0), torch.exp(uniform(-0.29, 0.29))
    full = uniform(0.0, 1.0) < whole
    w = torch.where(full, 1.0, (area * ratio).sqrt().clamp(max=1.0))
    h = torch.where(full, 1.0, (area / ratio).sqrt().clamp(max=1.0))
    cx, cy = uniform(-1.0, 1.0) * (1 - w), uniform(-1.0, 1.0) * (1 - h)
    flip = torch.where(uniform(0.0, 1.0) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(w)
    theta = torch.stack([torch.stack([w * flip, zero, cx], -1), torch.stack([zero, h, cy], -1)], 1)
    grid = F.affine_grid(theta, [n, 3, size, size], align_corners=False)
    x = F.grid_sample(
        images.float() / 255, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
    grey = x.mean(1, keepdim=True)
    saturation = torch.where(uniform(0.0, 1.0) < 0.05, 0.0, uniform(0.7, 1.3))[:, None, None, None]
    x = grey + (x - grey) * saturation
    middle = x.mean((1, 2, 3), keepdim=True)
    x = (
        middle * uniform(0.8, 1.2)[:, None, None, None]
        + (x - middle) * uniform(0.8, 1.2)[:, None, None, None]
    )
    return (x.clamp(0, 1) * 2 - 1).contiguous(memory_format=torch.channels_last)


def side_by_side(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Pictures of two images each: half of the pairs left and right, the others above each other."""
    half, size = len(first) // 2, x.shape[-1]
    wide, tall = (size, size // 2), (size // 2, size)

    def fit(rows: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        return F.interpolate(x[rows], shape, mode="bilinear", antialias=True, align_corners=False)

    beside = torch.cat([fit(first[:half], wide), fit(second[:half], wide)], 3)
    above = torch.cat([fit(first[half:], tall), fit(second[half:], tall)], 2)
    return torch.cat([beside, above]).contiguous(memory_format=torch.channels_last)
