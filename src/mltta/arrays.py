"""Functions missing from the array API, for NumPy and torch: results have the input's array type and device."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

#: a NumPy array or a torch tensor
Array: TypeAlias = Any


def to_numpy(x: Array) -> Any:
    """The values as a NumPy array; waits for a GPU."""
    return x.detach().cpu().numpy() if is_torch_array(x) else np.asarray(x)


def like(values: Any, x: Array) -> Array:
    """Values as an array of the same type as `x`, on its device."""
    return array_namespace(x).asarray(values, device=device(x))


def softmax(x: Array, axis: int = -1) -> Array:
    """Softmax along an axis."""
    if is_torch_array(x):
        return x.softmax(axis)
    raised = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return raised / np.sum(raised, axis=axis, keepdims=True)


def sigmoid(x: Array) -> Array:
    """Logistic sigmoid."""
    if is_torch_array(x):
        return x.sigmoid()
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def clamp(x: Array, low: float | None = None, high: float | None = None) -> Array:
    """Values clipped to [`low`, `high`]."""
    return x.clamp(low, high) if is_torch_array(x) else np.clip(x, low, high)


def normalize(x: Array, axis: int = -1) -> Array:
    """Vectors along an axis scaled to unit length; zero vectors stay zero."""
    length = array_namespace(x).linalg.vector_norm(x, axis=axis, keepdims=True)
    return x / clamp(length, 1e-12)


def topk(x: Array, n: int) -> tuple[Array, Array]:
    """The n largest values along the last axis and their indices, in descending order."""
    if is_torch_array(x):
        found = x.topk(n, dim=-1)
        return found.values, found.indices
    some = np.argpartition(x, -n, axis=-1)[..., -n:] if n < x.shape[-1] else np.argsort(x, axis=-1)
    values = np.take_along_axis(x, some, axis=-1)
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.take_along_axis(values, order, axis=-1), np.take_along_axis(some, order, axis=-1)


def on_grid(x: Array, bits: int) -> Array:
    """Values rounded to multiples of 2 ** -bits, so that sums of them are exact and do not depend on the order."""
    return array_namespace(x).round(x * 2.0**bits) / 2.0**bits


def sum_by(x: Array, owner: Array, count: int) -> Array:
    """Sums (..., count) of the columns of `x` (..., P) with the same owner; owners (P,) must ascend."""
    if is_torch_array(x):
        return x.new_zeros(*x.shape[:-1], count).index_add_(-1, owner, x)
    found = np.zeros((*x.shape[:-1], count), x.dtype)
    if len(owner):
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        found[..., owner[starts]] = np.add.reduceat(x, starts, axis=-1)
    return found


def max_by(x: Array, owner: Array, count: int) -> Array:
    """Maxima (..., count) of the columns of `x` (..., P) with the same owner; owners (P,) must ascend, without gaps."""
    if is_torch_array(x):
        index = owner.expand(x.shape)
        return x.new_empty(*x.shape[:-1], count).scatter_reduce_(-1, index, x, "amax", include_self=False)
    return np.maximum.reduceat(x, np.flatnonzero(np.diff(owner, prepend=-1)), axis=-1)


def add_rows(x: Array, owner: Array, rows: Array) -> Array:
    """Rows (N, D) added to those of `x` (C, D) that own them (N,)."""
    if is_torch_array(x):
        return x.index_add(0, owner, rows)
    found = x.copy()
    np.add.at(found, owner, rows)
    return found


def mean_windows(cells: Array, size: tuple[int, int], step: tuple[int, int]) -> Array:
    """Means (N, L, D), float32, of windows of a map (N, h, w, D), row by row."""
    if is_torch_array(cells):
        from torch.nn.functional import avg_pool2d

        return avg_pool2d(cells.permute(0, 3, 1, 2).float(), size, step).flatten(2).transpose(1, 2)
    (tall, wide), (_, h, w, _) = size, cells.shape
    rows = sum(cells[:, i : h - tall + 1 + i : step[0]] for i in range(tall))
    total = sum(rows[:, :, i : w - wide + 1 + i : step[1]] for i in range(wide))
    return total.reshape(len(cells), -1, cells.shape[-1]) / np.float32(tall * wide)


def multi_hot(members: Array, count: int) -> Array:
    """Sets (..., W) of indices below `count` as zeros and ones (..., count), float32."""
    xp = array_namespace(members)
    hot = xp.zeros((*members.shape[:-1], count), dtype=xp.float32, device=device(members))
    if is_torch_array(members):
        return hot.scatter_(-1, members.long(), 1.0)
    np.put_along_axis(hot, members, 1, axis=-1)
    return hot
