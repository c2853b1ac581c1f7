"""Tagging on a cluster: workers process shards and report to the manifest; resumable."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from mltta.distributed.cluster import Fitted, Size, connected, open_ray, spread
from mltta.distributed.photos import photos_of
from mltta.distributed.plan import PLAN, Plan, Shard, make_plan
from mltta.errors import ConfigError
from mltta.output.parquet import open_pyarrow
from mltta.output.partitions import MANIFEST, Part, Partitions, part_bytes, part_name, whole_part
from mltta.storage.checksums import of_bytes
from mltta.storage.folders import Folder
from mltta.storage.lock import locked
from mltta.tagger import Tagger

#: number of errors reported per shard; its file contains all of them
MOST_REASONS = 5


@dataclass
class Told:
    """A worker's report on a shard: its part, whether it was already done, the labels shown, the errors."""

    part: Part
    before: bool = False
    labels: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    #: machine and process of the worker
    worker: tuple[str, int] = field(default_factory=lambda: (platform.node(), os.getpid()))
    #: completion time by the machine's clock; reports may arrive later
    at: float = field(default_factory=time.time)


class Worker:
    """Tags shards.

    Args:
        held: reference to the tagger in the object store, in a list, so that it is fetched on first use; or a function
            that creates it.
        threads: photos processed in parallel.
    """

    def __init__(self, address: str, held: list[Any] | Callable[[], Tagger], threads: int):
        from ray.util.metrics import Counter as Metric

        self.folder, self.held, self.threads = Folder(address), held, threads
        self.count = Metric("mltta_photos", "Photos tagged by mltta.")  # on Ray's dashboard

    def __call__(self, job: tuple[Shard, Part | None]) -> Told:
        shard, part = job
        if part is not None and whole_part(self.folder, part) is not None:
            return Told(part, before=True)
        return self.tag(shard)

    @cached_property
    def tagger(self) -> Tagger:
        import ray

        tagger: Tagger = self.held() if callable(self.held) else ray.get(self.held[0])
        features = tagger.session.features
        if tagger.backbone.device.type == "cpu":  # other workers on this machine also decode
            features.execution = replace(features.execution, threads=self.threads)
        return tagger

    def tag(self, shard: Shard) -> Told:
        """Tag a shard and write its file; repeating it produces the same file."""
        start = time.perf_counter()
        records = [tags.record() for tags in self.tagger.stream(photos_of(shard, self.folder))]
        content = part_bytes(records)
        self.folder.write(part_name(shard.number), content)
        reasons = [record["error"] for record in records if "error" in record]
        seconds, crc = round(time.perf_counter() - start, 3), f"{of_bytes(content):08x}"
        if records:
            self.count.inc(len(records))
        labels = Counter(label for record in records for label in record.get("present", ()))
        part = Part(shard.number, len(content), crc, len(records), len(reasons), self.threads, seconds)
        return Told(part, False, dict(labels), reasons[:MOST_REASONS])


#: called with None at the start, then with each shard's report and the plan
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

    The call is resumable: shards whose file matches the checksum in the manifest are skipped. Each photo has exactly
    one row; a photo that cannot be read has a row with its error.

    Args:
        tagger: a tagger on a CPU, which is sent to the workers through the object store; or a function that creates
            one on the worker, as required for GPUs.
        sources: folders, files, tars and Parquet files as paths, patterns or addresses; "hf:NAME#SPLIT".
        out: a folder accessible to all workers, or an address.
        address: address of a cluster; see `connected`.
        shard_size: photos per shard (default: 32, growing to 1,024).
        overwrite: discard earlier results.
    """
    open_ray()
    open_pyarrow()
    folder, tell = Folder(out), progress or (lambda told, plan: None)
    with ExitStack() as stack:
        if folder.local is not None:
            folder.local.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.local / "_lock", str(folder)))
        ray, fitted = stack.enter_context(connected(address, size))
        held, about = _share(ray, tagger, fitted)
        if overwrite:  # late, so that a failing cluster or tagger deletes nothing
            _forget(folder)
        partitions = Partitions(out)
        partitions.begin(about)
        plan = make_plan(sources, folder, shard_size)
        partitions.planned(len(plan.shards))
        tell(None, plan)
        jobs = ((shard, partitions.parts.get(shard.number)) for shard in plan.shards)
        try:
            for told in spread(ray, fitted, jobs, Worker, folder.address, held, fitted.threads):
                partitions.add(told.part)
                tell(told, plan)
        finally:
            partitions.save()
    return partitions


def _share(ray: Any, tagger: Tagger | Callable[[], Tagger], fitted: Fitted) -> tuple[Any, dict[str, Any]]:
    """Share the tagger with workers, and describe everything that results depend on."""
    if not isinstance(tagger, Tagger):
        asked = ray.remote(num_cpus=fitted.cpus, num_gpus=fitted.gpus or None)(lambda: _about(tagger()))
        return tagger, ray.get(asked.remote())
    if fitted.gpus or tagger.backbone.device.type != "cpu":
        raise ConfigError("a tagger on a GPU cannot be sent to workers: pass a function that creates it")
    about = _about(tagger)
    own = sys.modules[type(tagger.method).__module__]
    if not own.__name__.startswith("mltta."):  # a user's file, possibly missing on the workers
        ray.cloudpickle.register_pickle_by_value(own)
    return [ray.put(tagger)], about


def _about(tagger: Tagger) -> dict[str, Any]:
    if tagger.method.online:
        raise ConfigError(
            f"{tagger.method.name} learns from earlier photos, but a cluster processes them in no fixed order: tag "
            "without --ray, or use an episodic method"
        )
    return tagger.about()


def _forget(folder: Folder) -> None:
    """Remove the files of an earlier run, the manifest first; other files stay."""
    names = folder.names()
    if MANIFEST in names or PLAN in names:
        for name in (MANIFEST, PLAN, *(name for name in names if fnmatchcase(name, "part-*.parquet"))):
            folder.remove(name)
