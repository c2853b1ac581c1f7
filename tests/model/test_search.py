"""The plain search for nearest captions: a full scan, in one go or in pieces."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mltta.model import search
from mltta.model.search import Search


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize("n", [1, 16, 300])
@pytest.mark.parametrize("piece", [10, 64, 2**18])
@pytest.mark.parametrize("at_once", [1, 3, 2**20])
def test_pieces_of_captions_and_of_rows_give_the_answer_of_one_product(monkeypatch, n, piece, at_once):
    monkeypatch.setattr(search, "PIECE", piece)
    monkeypatch.setattr(search, "BYTES", 4 * min(piece, 250) * at_once)
    base, features = unit(250, 32), unit(2, 7, 32, seed=1)
    want = (features @ base.T).topk(min(n, 250), dim=-1)
    values, indices = Search(base)(features, n)
    torch.testing.assert_close(indices, want.indices)
    torch.testing.assert_close(values, want.values)
