"""What runs in each actor: one tagger, and shard after shard through it into a Parquet file."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mltta.distributed.photos import photos_of
from mltta.distributed.plan import Shard
from mltta.output.partitions import Part, part_bytes, part_name, whole_part
from mltta.storage.checksums import of_bytes
from mltta.storage.folders import Folder
from mltta.tagger import Tagger

#: reasons why photos failed that are reported per shard; its file has all of them
MOST_REASONS = 5


@dataclass
class Told:
    """What a worker reports of a shard: its part, whether an earlier run did it, which labels it shows, what failed."""

    part: Part
    before: bool = False
    labels: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    #: the machine, and the process on it
    worker: tuple[str, int] = field(default_factory=lambda: (platform.node(), os.getpid()))
    #: when it was done, by that machine's clock: reports may arrive later
    at: float = field(default_factory=time.time)


class Worker:
    """Tags shards.

    Args:
        held: the tagger in the object store, in a list, so that it is fetched when it is needed; or a function that
            makes it.
        threads: photos at the same time.
    """

    def __init__(self, address: str, held: list[Any] | Callable[[], Tagger], threads: int):
        from ray.util.metrics import Counter as Metric

        self.folder, self.held, self.threads = Folder(address), held, threads
        self.count = Metric("mltta_photos", "Photos that mltta has tagged.")  # on Ray's dashboard

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
        if tagger.backbone.device.type == "cpu":  # other workers of this machine decode too
            features.execution = replace(features.execution, threads=self.threads)
        return tagger

    def tag(self, shard: Shard) -> Told:
        """Tag a shard and write its file; done twice, it is the same file."""
        start = time.perf_counter()
        records = [tags.record() for tags in self.tagger.stream(photos_of(shard, self.folder))]
        content = part_bytes(records)
        self.folder.write(part_name(shard.number), content)
        reasons = [record["error"] for record in records if "error" in record]
        seconds = round(time.perf_counter() - start, 3)
        crc = f"{of_bytes(content):08x}"
        if records:
            self.count.inc(len(records))
        labels = Counter(label for record in records for label in record.get("present", ()))
        part = Part(shard.number, len(content), crc, len(records), len(reasons), self.threads, seconds)
        return Told(part, False, dict(labels), reasons[:MOST_REASONS])
