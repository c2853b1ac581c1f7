"""Tagging on a cluster: shards out to the workers, what they tell into the manifest; the same call goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from mltta.distributed.cluster import Fitted, Size, connected, fit, nodes_of, open_ray, spread
from mltta.distributed.plan import PLAN, Plan, Shard, make_plan
from mltta.distributed.worker import Told, Worker
from mltta.errors import ConfigError
from mltta.output.parquet import open_pyarrow
from mltta.output.partitions import MANIFEST, Part, Partitions
from mltta.storage.filesystems import Folder
from mltta.storage.lock import locked
from mltta.tagger import Tagger

#: hears when it begins, with None, and then of every shard that is done, with the plan that it is part of
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
    """Tag photos on a Ray cluster, into a folder with a Parquet file a shard and a manifest.

    The same call goes on where an earlier one ended, however it ended: a shard whose file has the checksum that the
    manifest knows is left alone. Each photo has exactly one row, and a photo that cannot be read a row with its error.

    Args:
        tagger: one on a CPU, which is sent to the workers through the object store; or a function that makes one where
            it runs, as workers with GPUs need it.
        sources: folders, files, tars and Parquet files by path, pattern or address; "hf:NAME#SPLIT".
        out: a folder that all workers reach, or an address.
        address: of a cluster; see `connected`.
        shard_size: photos of a shard, in place of sizes that grow.
        overwrite: start anew.
    """
    open_ray()
    open_pyarrow()
    folder = Folder(out)
    with ExitStack() as stack:
        if folder.local is not None:
            folder.local.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.local / "_lock", str(folder)))
        if overwrite:
            _forget(folder)
        ray = stack.enter_context(connected(address))
        fitted = fit(size or Size(), nodes_of(ray))
        held, about = _share(ray, tagger, fitted)
        partitions = Partitions(out)
        partitions.begin(about)
        plan = make_plan(sources, folder, shard_size)
        partitions.planned(len(plan.shards))
        arguments = (folder.address, held, fitted.threads)
        rows = ({"shard": _row(shard, partitions.parts.get(shard.number))} for shard in plan.shards)
        if progress is not None:
            progress(None, plan)
        try:
            for row in spread(ray, Worker, arguments, rows, fitted):
                told = _told(row["told"])
                partitions.add(told.part)
                if progress is not None:
                    progress(told, plan)
        finally:
            partitions.save()
    return partitions


def _share(ray: Any, tagger: Tagger | Callable[[], Tagger], fitted: Fitted) -> tuple[Any, dict[str, Any]]:
    """What a worker gets its tagger from, and all that the answers depend on."""
    if not isinstance(tagger, Tagger):
        asked = ray.remote(num_cpus=fitted.cpus, num_gpus=fitted.gpus or None)(_about)
        about: dict[str, Any] = ray.get(asked.remote(tagger))
        return tagger, about
    if fitted.gpus or tagger.backbone.device.type != "cpu":
        raise ConfigError("a tagger on a GPU cannot be sent to workers: give a function that makes it there")
    _refuse_online(tagger)
    own = sys.modules[type(tagger.method).__module__]
    if not own.__name__.startswith("mltta."):  # a user's file, which workers may not have
        ray.cloudpickle.register_pickle_by_value(own)
    return [ray.put(tagger)], tagger.about()


def _about(build: Callable[[], Tagger]) -> dict[str, Any]:
    tagger = build()
    _refuse_online(tagger)
    return tagger.about()


def _refuse_online(tagger: Tagger) -> None:
    if tagger.method.online:
        raise ConfigError(
            f"{tagger.method.name} learns from the photos before, in their order, and on a cluster there is none: tag "
            "without --ray, or use a method that looks at each photo alone"
        )


def _forget(folder: Folder) -> None:
    """Remove what an earlier run has written here, the manifest first; what is not ours stays."""
    names = folder.names()
    if MANIFEST in names or PLAN in names:
        for name in (MANIFEST, PLAN, *(name for name in names if _ours(name))):
            folder.remove(name)


def _ours(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet")


def _row(shard: Shard, part: Part | None) -> str:
    return json.dumps({**asdict(shard), "part": None if part is None else asdict(part)})


def _told(said: str) -> Told:
    held = json.loads(said)
    return Told(**{**held, "part": Part(**held["part"]), "worker": tuple(held["worker"])})
