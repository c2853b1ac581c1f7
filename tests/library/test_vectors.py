"""Nearest neighbours, packed features and duplicates, against simple reference implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltta.library.duplicates import groups, pairs
from mltta.library.vectors import best, photo_vector, put, read, similarities
from mltta.session.packing import pack, unpack


def units(*shape: int, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal(shape)
    return (found / np.linalg.norm(found, axis=-1, keepdims=True)).astype(np.float16)


def test_vectors_are_read_back_and_rows_beyond_the_last_photo_do_not_count(tmp_path):
    rows, file = units(5, 8), tmp_path / "vectors"
    assert read(file, 0, 8).shape == (0, 8)
    put(file, {1: rows[0], 2: rows[1]})
    put(file, {3: rows[2], 2: rows[4]})
    np.testing.assert_array_equal(read(file, 3, 8), rows[[0, 4, 2]])
    assert len(read(file, 2, 8)) == 2


def test_similarities_are_cosines_in_any_number_of_blocks(monkeypatch):
    monkeypatch.setattr("mltta.library.vectors.AT_ONCE", 7)
    rows, queries = units(30, 16), units(3, 16, seed=1).astype(np.float32)
    np.testing.assert_allclose(similarities(rows, queries), rows.astype(np.float32) @ queries.T, atol=1e-6)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 40))
def test_the_best_come_first_and_equal_ones_keep_their_order(values, count):
    scores = np.array(values, np.float32)
    wanted = sorted(range(len(values)), key=lambda i: (-values[i], i))[:count]
    assert best(scores, count).tolist() == wanted


def test_the_vector_of_a_photo_is_the_mean_of_its_whole_views():
    one, other = units(2, 8)
    mean = one.astype(np.float32) + other.astype(np.float32)
    np.testing.assert_allclose(photo_vector([one, other]), mean / np.linalg.norm(mean), atol=1e-3)


def test_packed_features_are_close_and_packing_them_again_changes_nothing():
    rows = units(40, 64)
    once = unpack(pack(rows))
    assert np.einsum("nd,nd->n", once.astype(np.float32), rows.astype(np.float32)).min() > 0.9995
    assert pack(rows).itemsize == 64 + 2
    np.testing.assert_allclose(unpack(pack(once)), once.astype(np.float32), atol=5e-3)
    assert np.isfinite(unpack(pack(np.zeros((1, 8), np.float16)))).all()


def test_pairs_are_those_of_the_whole_matrix(monkeypatch):
    monkeypatch.setattr("mltta.library.duplicates.BLOCK", 7)
    rows = np.concatenate([units(20, 4), units(20, 4)[3:9]])
    every = rows.astype(np.float32) @ rows.astype(np.float32).T
    wanted = [(i, j) for i in range(26) for j in range(i + 1, 26) if every[i, j] >= 0.9]
    assert sorted((i, j) for i, j, _ in pairs(rows, 0.9)) == wanted
    assert wanted


@pytest.mark.parametrize(
    ("links", "wanted"),
    [
        ([], []),
        ([(0, 1)], [[0, 1]]),
        ([(3, 4), (1, 3), (0, 5)], [[0, 5], [1, 3, 4]]),
        ([(1, 4), (2, 3), (2, 4)], [[1, 2, 3, 4]]),
    ],
)
def test_groups_are_connected_components(links, wanted):
    assert groups((i, j, 1.0) for i, j in links) == wanted
