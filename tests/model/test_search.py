"""Searching captions by halves and groups finds what a full float32 scan finds."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F

from mltta.model import search
from mltta.model.search import Search


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize("captions", [5, 127, 128, 129, 5000])
@pytest.mark.parametrize("n", [1, 16])
def test_the_scan_in_half_precision_finds_what_a_full_scan_finds(captions, n):
    base, features = unit(captions, 32), unit(2, 7, 32, seed=1)
    want = (features @ base.T).topk(min(n, captions), dim=-1)
    values, indices = Search(base)._scan(features.flatten(0, 1), min(n, captions))
    torch.testing.assert_close(indices.view_as(want.indices), want.indices)
    torch.testing.assert_close(values.view_as(want.values), want.values)


def test_neighbours_closer_than_half_precision_are_told_apart():
    rows = unit(3, 32, seed=1)
    # 40 captions that differ from a view by less than half precision sees
    base = torch.cat([unit(2000, 32), F.normalize(rows[:1] + 1e-2 * unit(40, 32, seed=2), dim=-1)])
    want = (rows @ base.T).topk(16).indices
    got = Search(base)._scan(rows, 16)[1]
    assert set(got[0].tolist()) == set(want[0].tolist())


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("n", [1, 16, 300])
def test_a_long_list_on_a_cpu_is_searched_with_the_same_answer(monkeypatch, installed, n):
    monkeypatch.setattr(search, "LARGE", 200)
    monkeypatch.setattr(search, "PIECE", 64)
    if installed:
        pytest.importorskip("faiss")
    else:
        monkeypatch.setitem(sys.modules, "faiss", None)
    base, features = unit(250, 32), unit(2, 7, 32, seed=1)
    want = (features @ base.T).topk(min(n, 250), dim=-1)
    finder = Search(base)
    values, indices = finder(features, n)
    assert (finder._faiss is not None) is installed
    torch.testing.assert_close(indices, want.indices)
    torch.testing.assert_close(values, want.values)
