"""What runs in each actor: one tagger, and shard after shard through it into a Parquet file."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from mltta.distributed.photos import photos_of
from mltta.distributed.plan import Shard
from mltta.output.partitions import Part, part_bytes, part_name, whole_part
from mltta.output.records import Record
from mltta.storage.checksums import of_bytes
from mltta.storage.filesystems import Folder
from mltta.tagger import Tagger

#: reasons why photos failed that a shard tells at once; its file has them all
MOST_REASONS = 5


@dataclass
class Told:
    """What a worker says of a shard: the part, whether it was done before, which labels it shows, what failed."""

    part: Part
    before: bool = False
    labels: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    #: the machine, and the process on it
    worker: tuple[str, int] = field(default_factory=lambda: (platform.node(), os.getpid()))
    #: when it was done, by that machine's clock: what is told may be heard later
    at: float = field(default_factory=time.time)


class Worker:
    """Tags shards; made once an actor, and once more where an actor was lost.

    Args:
        held: the tagger in the object store, in a list, so that it is fetched when it is needed; or how to make it.
        threads: photos side by side.
    """

    def __init__(
        self,
        address: str,
        held: list[Any] | Callable[[], Tagger],
        threads: int,
    ):
        torch.set_num_threads(threads)
        self.folder, self.threads = Folder(address), threads
        self._held = held
        self._tagger: Tagger | None = None
        self._count = _counter()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        """Rows of shards, in JSON, to rows of what is told of them."""
        return {"told": [json.dumps(asdict(self._one(json.loads(row)))) for row in batch["shard"]]}

    @property
    def tagger(self) -> Tagger:
        if self._tagger is None:
            self._tagger = self._held() if callable(self._held) else _fetched(self._held[0])
            pipeline = self._tagger.pipeline
            if pipeline.backbone.device.type == "cpu":  # other workers of this machine decode too
                pipeline.execution = replace(pipeline.execution, threads=self.threads)
        return self._tagger

    def _one(self, given: dict[str, Any]) -> Told:
        part = given.pop("part")
        if part is not None and whole_part(self.folder, Part(**part)) is not None:
            return Told(Part(**part), before=True)
        return self.tag(Shard(**given))

    def tag(self, shard: Shard) -> Told:
        """Tag a shard and put its file in its place; done twice, it is the same file."""
        start = time.perf_counter()
        records = list(self._records(shard))
        content = part_bytes(records)
        self.folder.write(part_name(shard.number), content)
        reasons = [record["error"] for record in records if "error" in record]
        seconds = round(time.perf_counter() - start, 3)
        crc = f"{of_bytes(content):08x}"
        part = Part(shard.number, len(content), crc, len(records), len(reasons), self.threads, seconds)
        self._count(len(records))
        labels = Counter(label for record in records for label in record.get("present", ()))
        return Told(part, False, dict(labels), reasons[:MOST_REASONS])

    def _records(self, shard: Shard) -> Iterator[Record]:
        for tags in self.tagger.stream(photos_of(shard, self.folder)):
            yield tags.record()


def _fetched(reference: Any) -> Tagger:
    import ray

    tagger: Tagger = ray.get(reference)
    return tagger


def _counter() -> Callable[[float], None]:
    """Counts photos on Ray's dashboard."""
    from ray.util.metrics import Counter as Metric

    count: Callable[[float], None] = Metric("mltta_photos", "Photos that mltta has tagged.").inc
    return lambda n: count(n) if n else None
