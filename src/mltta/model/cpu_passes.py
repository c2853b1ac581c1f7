"""Encode photos on a CPU with any engine: each photo alone, each pass on one thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace

from mltta.arrays import Array
from mltta.images.specs import AnySpec, LocalSpec, ViewSpec

if TYPE_CHECKING:
    from mltta.model.backbone import Backbone
    from mltta.session.prepare import Prepared

#: views in a pass, few enough for a CPU's caches: 64 at once take five times as long
CPU_CHUNK = 8
#: whether this Python runs in a web page, which has no threads
IN_PAGE = sys.platform == "emscripten"


class Inline(Executor):
    """Does all work at once, on the thread that asks for it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def thread_pool(threads: int, name: str) -> Executor:
    """A pool of threads, where there are any."""
    return Inline() if IN_PAGE else ThreadPoolExecutor(threads, name)


def cores() -> int:
    """Number of cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def encode_alone(
    backbone: Backbone, photos: Sequence[Prepared], threads: Executor
) -> list[dict[AnySpec, Array]]:
    """Half-precision features of all photos; all passes run in parallel, each on one thread.

    Passes with few views may round differently from passes with many. The clean view therefore always has its own pass,
    as in methods that need no other view, and the last pass of crops is padded.
    """
    passes: list[tuple[Any, Array]] = []
    for photo in photos:
        if photo.clean is not None:
            passes.append((backbone.tower_of(ViewSpec(count=1)), photo.clean))
        for spec, views in photo.pixels.items():
            tower = backbone.tower_of(spec)
            passes += [(tower, part) for part in _divided(spec, views)]
    run = threads.map(lambda one: one[0].one_pass(one[1]), passes)
    found: list[dict[AnySpec, Array]] = []
    for photo in photos:
        clean = [] if photo.clean is None else [_half(next(run))]
        own: dict[AnySpec, Array] = {}
        for spec, views in photo.pixels.items():
            parts = [_half(next(run)) for _ in _divided(spec, views)]
            xp = array_namespace(*parts)
            rest = parts[0][0] if isinstance(spec, LocalSpec) else xp.concat(parts)[: len(views)]
            own[spec] = xp.concat([*clean, rest]) if spec.has_clean else rest
        own |= {spec: clean[0] for spec in photo.missing if spec not in own}
        found.append(own)
    return found


def _half(features: Array) -> Array:
    xp = array_namespace(features)
    return features.half() if hasattr(features, "half") else xp.astype(features, xp.float16)


def _divided(spec: AnySpec, views: np.ndarray) -> list[np.ndarray]:
    """Views in passes of CPU_CHUNK, the last padded with copies; the input of local views is one pass."""
    if isinstance(spec, LocalSpec):
        return [views]
    filled = np.concatenate([views, views[-1:].repeat(-len(views) % CPU_CHUNK, axis=0)])
    return [filled[i : i + CPU_CHUNK] for i in range(0, len(filled), CPU_CHUNK)]
