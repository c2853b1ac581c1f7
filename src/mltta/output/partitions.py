"""Tags in partitions: a folder with one Parquet file per shard and a manifest of their checksums.

Readers of Parquet folders skip names that begin with an underscore.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltta.errors import MlttaError
from mltta.output.formats import Page, Record
from mltta.output.parquet import open_pyarrow, write_parquet
from mltta.output.records import are_settings, is_record
from mltta.output.tags_file import refuse_others
from mltta.output.tags_journal import OTHERWISE
from mltta.storage.checksums import CHECKSUM, of_bytes, sealed, unsealed
from mltta.storage.folders import Folder, is_remote
from mltta.storage.reading import reading
from mltta.storage.rules import list_of, matches, number, table, text, whole

FORMAT, MANIFEST = "mltta-partitions-2", "_manifest.json"
#: format of version 0.2.0: readable but not resumable, as its rule for which labels are present differs
OLD = "mltta-partitions-1"
#: minimum seconds between writes of the manifest, which is the work that a killed driver can lose
OFTEN = 2.0


_PART = table(
    {"shard": whole(10**7), "crc32": matches("[0-9a-f]{8}", 9), "seconds": number(1e12, 0)}
    | dict.fromkeys(("size", "images", "failed", "threads"), whole(1 << 40))
)
_MANIFEST = table(
    {"format": text(40), "shards": whole(10**7), "settings": are_settings, "parts": list_of(_PART, 10**7)}
    | {CHECKSUM: text(8)}
)


@dataclass(frozen=True)
class Part:
    """A finished shard: size and checksum of its file, and how it was made."""

    shard: int
    size: int
    crc32: str
    images: int
    failed: int
    #: number of concurrent photos, and time taken
    threads: int
    seconds: float

    @property
    def name(self) -> str:
        return part_name(self.shard)


def part_name(shard: int) -> str:
    """Return the file name of a shard."""
    return f"part-{shard:07}.parquet"


class Partitions:
    """A local or remote folder of partitions and its manifest."""

    def __init__(self, address: str):
        self.folder = Folder(address)
        #: settings of the run; None if there is no manifest yet
        self.settings: dict[str, Any] | None = None
        #: planned number of shards, and the finished ones
        self.count = 0
        self.parts: dict[int, Part] = {}
        self._saved, self._took, self._old = 0.0, 0.0, False
        try:
            content = self.folder.read(MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            return
        held = unsealed(content, FORMAT) or unsealed(content, OLD)
        if held is None:
            said = f"{self.folder}/{MANIFEST} is damaged, so its parts cannot be verified; {OTHERWISE}"
            raise MlttaError(said)
        if not _MANIFEST(held):
            raise MlttaError(
                f"{self.folder}/{MANIFEST} is intact, but not from `mltta tag --ray`; {OTHERWISE}"
            )
        self.settings, self.count, self._old = held["settings"], held["shards"], held["format"] == OLD
        self.parts = {one["shard"]: Part(**one) for one in held["parts"]}

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Resume a run with the same settings, or start one; other settings are refused."""
        if self._old:
            said = "was written by version 0.2.0, which this version can read but not resume"
            raise MlttaError(f"{self.folder} {said}; {OTHERWISE}")
        if self.settings is not None:
            refuse_others(str(self.folder), self.settings, settings)
            return
        if strangers := [name for name in self.folder.names() if name[:1] not in "_."]:
            said = f"but no {MANIFEST}, so it is not an output of --ray; choose another -o"
            raise MlttaError(f"{self.folder} contains {strangers[0]} {said}")
        self.settings = json.loads(json.dumps(settings))

    def planned(self, count: int) -> None:
        """Set the planned number of shards."""
        self.count = count
        self.save()

    def add(self, part: Part) -> None:
        """Record a finished shard; the manifest is written periodically."""
        self.parts[part.shard] = part
        if time.monotonic() - self._saved > max(OFTEN, 20 * self._took):
            self.save()

    def save(self) -> None:
        """Write the manifest."""
        start = time.monotonic()
        parts = [asdict(self.parts[shard]) for shard in sorted(self.parts)]
        held = {"format": FORMAT, "shards": self.count, "settings": self.settings, "parts": parts}
        self.folder.write(MANIFEST, json.dumps(sealed(held)).encode())
        self._saved = time.monotonic()
        self._took = self._saved - start

    @property
    def images(self) -> int:
        """Number of photos in the finished shards."""
        return sum(part.images for part in self.parts.values())

    def records(self) -> Iterator[Record]:
        """Yield the record of every photo, in the order of the sources; damaged parts are refused."""
        if len(self.parts) < self.count:
            done = f"{len(self.parts):,} of {self.count:,} shards are done"
            raise MlttaError(f"{self.folder} is not finished: {done}; rerun the command that created it")
        _, parquet = open_pyarrow()
        for _, part in sorted(self.parts.items()):
            if (content := whole_part(self.folder, part)) is None:
                said = "is missing or damaged; rerun the command that created it to restore only this part"
                raise MlttaError(f"{self.folder}/{part.name} {said}")
            with reading(f"{self.folder}/{part.name}", MlttaError, OTHERWISE):
                file = parquet.ParquetFile(io.BytesIO(content))
                if file.metadata.num_rows != part.images:
                    raise ValueError("another number of rows")
                for batch in file.iter_batches(256, columns=["image", "labels", "scores", "error"]):
                    yield from map(_record, batch.to_pylist())


def _record(row: Mapping[str, Any]) -> Record:
    record = {"image": row["image"], "error": row["error"]}
    if row["error"] is None:
        shown = zip(row["labels"], row["scores"], strict=True)
        labels = [{"label": label, "score": score} for label, score in shown]
        record = {"image": row["image"], "present": row["labels"], "labels": labels}
    if not is_record(record, None):
        raise ValueError("not the record of an image")
    return record


def whole_part(folder: Folder, part: Part) -> bytes | None:
    """Return the content of a shard's file if it matches the manifest."""
    with suppress(OSError):
        content = folder.read(part.name)
        if len(content) == part.size and f"{of_bytes(content):08x}" == part.crc32:
            return content
    return None


def part_bytes(records: Iterable[Record]) -> bytes:
    """Return the content of a shard's file; equal records give equal bytes."""
    held = io.BytesIO()
    write_parquet(held, records, Page(Path(), 0, (), wide=True))
    return held.getvalue()


def is_partitions(path: Path | str) -> bool:
    """Whether a local or remote folder contains partitions."""
    remote = is_remote(str(path))
    return MANIFEST in Folder(str(path)).names() if remote else Path(path, MANIFEST).is_file()
