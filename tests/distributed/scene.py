"""A small world for the cluster: photos that differ, the tiny model, and what a run without a cluster says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltta.distributed.plan import make_plan
from mltta.distributed.tag_shards import Told, Worker
from mltta.output.formats import Record
from mltta.output.partitions import Partitions
from mltta.storage.folders import Folder
from mltta.tagger import Tagger
from tests.safety.world import backbone, captions, photo

#: every label is shown, so that no score can differ unseen
SHOW = {"threshold": 0.0}


def tagger(method: str = "clip", **options: Any) -> Tagger:
    return Tagger(backbone(), ["dog", "cat", "sofa"], method, captions=captions(), **SHOW | options)


def make_photos(folder: Path, count: int) -> Path:
    """Photos in folders and beside them, so that their order is not that of a list of files."""
    for seed in range(count):
        file = folder / ("", "b", "b/c", "d.e")[seed % 4] / f"{seed:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        photo(seed).save(file)
    return folder


def local(images: list[Any], names: list[str] | None = None) -> list[Record]:
    """What a plain run says, under the names that a cluster gives; a cluster stores no keywords."""
    found = [tags.record() for tags in tagger().stream(images)]
    for record in found:
        record.pop("keywords", None)
    for record, name in zip(found, names or [], strict=False):
        record["image"] = name
    return found


def in_this_process(sources: list[str], out: str, size: int | None = None) -> tuple[list[Record], list[Told]]:
    """The same shards and the same worker as on a cluster, one shard after another."""
    plan = make_plan(sources, Folder(out), size)
    worker = Worker(Folder(out).address, tagger, 1)
    partitions = Partitions(out)
    partitions.begin(tagger().about())
    partitions.planned(len(plan.shards))
    told = [worker.tag(shard) for shard in plan.shards]
    for one in told:
        partitions.add(one.part)
    partitions.save()
    return list(Partitions(out).records()), told
