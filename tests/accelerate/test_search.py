"""Searching captions by halves and groups, or by FAISS, finds what a full float32 scan finds."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F

from mltta.accelerate import search
from mltta.accelerate.search import FaissSearch, HalfSearch
from mltta.model import search as plain
from tests.model.test_search import unit


@pytest.mark.parametrize("captions", [5, 127, 128, 129, 5000])
@pytest.mark.parametrize("n", [1, 16])
def test_the_scan_in_half_precision_finds_what_a_full_scan_finds(monkeypatch, captions, n):
    monkeypatch.setattr(search, "SCANNED_IN_HALF", 1)
    base, features = unit(captions, 32), unit(2, 7, 32, seed=1)
    want = (features @ base.T).topk(min(n, captions), dim=-1)
    finder = HalfSearch(base)
    values, indices = finder(features, n)
    assert "_halves" in vars(finder)
    torch.testing.assert_close(indices, want.indices)
    torch.testing.assert_close(values, want.values)


def test_neighbours_closer_than_half_precision_are_told_apart():
    rows = unit(3, 32, seed=1)
    # 40 captions that differ from a view by less than half precision sees
    base = torch.cat([unit(2000, 32), F.normalize(rows[:1] + 1e-2 * unit(40, 32, seed=2), dim=-1)])
    want = (rows @ base.T).topk(16).indices
    got = HalfSearch(base)._scan(rows, 16)[1]
    assert set(got[0].tolist()) == set(want[0].tolist())


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("n", [1, 16, 300])
def test_a_long_list_on_a_cpu_is_searched_with_the_same_answer(monkeypatch, installed, n):
    monkeypatch.setattr(search, "LARGE", 200)
    monkeypatch.setattr(plain, "PIECE", 50)
    if installed:
        pytest.importorskip("faiss")
    else:
        monkeypatch.setitem(sys.modules, "faiss", None)
    base, features = unit(250, 32), unit(2, 7, 32, seed=1)
    want = (features @ base.T).topk(min(n, 250), dim=-1)
    finder = FaissSearch(base)
    values, indices = finder(features, n)
    assert (finder._faiss is not None) is installed
    torch.testing.assert_close(indices, want.indices)
    torch.testing.assert_close(values, want.values)


@pytest.mark.parametrize("kind", [HalfSearch, FaissSearch])
def test_a_short_list_is_scanned_plainly_to_the_bit(kind):
    base, features = unit(250, 32), unit(2, 7, 32, seed=1)
    for one, other in zip(kind(base)(features, 16), plain.Search(base)(features, 16), strict=True):
        assert torch.equal(one, other)
