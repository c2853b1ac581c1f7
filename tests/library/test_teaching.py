"""Heads learned from examples separate what they were shown, and leave a good text alone."""

from __future__ import annotations

import numpy as np
import pytest

from mltta.library.teaching import Examples, Teacher

D, WINDOWS = 32, 6


def scene(n: int, seed: int, things: float = 0.0) -> Examples:
    """Photos of noise; with ``things``, one window of each also shows along the first dimension."""
    random = np.random.default_rng(seed)
    windows = random.standard_normal((n, WINDOWS, D)).astype(np.float32)
    windows[:, 2, 0] += things
    windows /= np.linalg.norm(windows, axis=-1, keepdims=True)
    whole = windows.mean(axis=1)
    return Examples(whole / np.linalg.norm(whole, axis=-1, keepdims=True), windows)


def odds(head: tuple, photos: Examples, text: np.ndarray) -> np.ndarray:
    weight, whole, window, bias = head
    return weight * text + photos.whole @ whole + (photos.windows @ window).max(axis=1) + bias


@pytest.mark.parametrize(("n", "least"), [(1, 0.6), (2, 0.95), (8, 0.99)])
def test_a_label_that_no_text_describes_is_learned(n, least):
    library, shows, others = scene(200, 0), scene(60, 2, 12.0), scene(60, 3)
    noise = np.random.default_rng(4).standard_normal(260).astype(np.float32) - 6
    head = Teacher(library).learn(scene(n, 1, 12.0), scene(0, 1), noise[:n], noise[:200])
    high, low = odds(head, shows, noise[200:]), odds(head, others, noise[200:])
    assert (high[:, None] > low).mean() > least


def test_negatives_push_away_what_they_share_with_the_examples():
    library, yes = scene(200, 0), scene(2, 1, 12.0)
    text = np.zeros(200, np.float32)
    alone = Teacher(library).learn(yes, scene(0, 1), text[:2], text)
    against = Teacher(library).learn(yes, scene(6, 5, 12.0), text[:2], text)
    shared, flat = scene(50, 6, 12.0), np.zeros(50, np.float32)
    library_mean = [odds(head, library, text).mean() for head in (alone, against)]
    assert (
        odds(against, shared, flat).mean() - library_mean[1]
        < odds(alone, shared, flat).mean() - library_mean[0]
    )


def test_a_text_that_describes_its_photos_keeps_its_weight():
    library, yes = scene(200, 0), scene(8, 1)
    text = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    described, own, *_ = Teacher(library).learn(yes, scene(0, 1), np.full(8, 4, np.float32), text)
    not_described, other, *_ = Teacher(library).learn(yes, scene(0, 1), np.full(8, -1, np.float32), text)
    assert described == pytest.approx(1)
    ratio = (not_described / np.linalg.norm(other)) / (described / np.linalg.norm(own))
    assert ratio == pytest.approx(0.5 / 8.5, rel=1e-3)
