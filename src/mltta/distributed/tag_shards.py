"""Tagging on a cluster: shards go to the workers, and their reports into the manifest; resumable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from mltta.distributed.cluster import Fitted, Size, connected, open_ray, spread
from mltta.distributed.plan import PLAN, Plan, make_plan
from mltta.distributed.worker import Told, Worker
from mltta.errors import ConfigError
from mltta.output.parquet import open_pyarrow
from mltta.output.partitions import MANIFEST, Partitions
from mltta.storage.folders import Folder
from mltta.storage.lock import locked
from mltta.tagger import Tagger

#: called with None at the start, and then with the report of every shard that is done, and the plan it is part of
Progress = Callable[[Told | None, Plan], None]


def tag(
    tagger: Tagger | Callable[[], Tagger],
    sources: Sequence[str],
    out: str,
    *,
    address: str | None = None,
    size: Size | None = None,
    shard_size: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Partitions:
    """Tag photos on a Ray cluster, into a folder with one Parquet file per shard and a manifest.

    The call is resumable: a shard whose file has the checksum in the manifest is left alone. Each photo has exactly
    one row, and a photo that cannot be read has a row with its error.

    Args:
        tagger: one on a CPU, which is sent to the workers through the object store; or a function that makes one where
            it runs, as workers with GPUs need it.
        sources: folders, files, tars and Parquet files by path, pattern or address; "hf:NAME#SPLIT".
        out: a folder that all workers reach, or an address.
        address: of a cluster; see `connected`.
        shard_size: photos per shard (default: 32, growing to 1,024).
        overwrite: start anew.
    """
    open_ray()
    open_pyarrow()
    folder = Folder(out)
    with ExitStack() as stack:
        if folder.local is not None:
            folder.local.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.local / "_lock", str(folder)))
        ray, fitted = stack.enter_context(connected(address, size))
        held, about = _share(ray, tagger, fitted)
        if overwrite:  # only now: a cluster or a tagger that fails costs nothing
            _forget(folder)
        partitions = Partitions(out)
        partitions.begin(about)
        plan = make_plan(sources, folder, shard_size)
        partitions.planned(len(plan.shards))
        if progress is not None:
            progress(None, plan)
        jobs = ((shard, partitions.parts.get(shard.number)) for shard in plan.shards)
        try:
            for told in spread(ray, fitted, jobs, Worker, folder.address, held, fitted.threads):
                partitions.add(told.part)
                if progress is not None:
                    progress(told, plan)
        finally:
            partitions.save()
    return partitions


def _share(ray: Any, tagger: Tagger | Callable[[], Tagger], fitted: Fitted) -> tuple[Any, dict[str, Any]]:
    """What a worker gets its tagger from, and everything that the answers depend on."""
    if not isinstance(tagger, Tagger):
        asked = ray.remote(num_cpus=fitted.cpus, num_gpus=fitted.gpus or None)(lambda: _about(tagger()))
        about: dict[str, Any] = ray.get(asked.remote())
        return tagger, about
    if fitted.gpus or tagger.backbone.device.type != "cpu":
        raise ConfigError("a tagger on a GPU cannot be sent to workers: give a function that makes it there")
    about = _about(tagger)
    own = sys.modules[type(tagger.method).__module__]
    if not own.__name__.startswith("mltta."):  # a user's file, which workers may not have
        ray.cloudpickle.register_pickle_by_value(own)
    return [ray.put(tagger)], about


def _about(tagger: Tagger) -> dict[str, Any]:
    if tagger.method.online:
        raise ConfigError(
            f"{tagger.method.name} learns from the photos before it, in order, and a cluster has no order: tag "
            "without --ray, or use a method that sees each photo alone"
        )
    return tagger.about()


def _forget(folder: Folder) -> None:
    """Remove what an earlier run has written here, the manifest first; other files stay."""
    names = folder.names()
    if MANIFEST in names or PLAN in names:
        parts = (name for name in names if name.startswith("part-") and name.endswith(".parquet"))
        for name in (MANIFEST, PLAN, *parts):
            folder.remove(name)
