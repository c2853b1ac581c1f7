"""Tags in partitions: a folder of Parquet files, one a shard, and a manifest with the checksum that each must have.

Names that begin with an underscore are passed over by whatever reads a folder of Parquet files as one table.
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
from mltta.output.tags_file import refuse_others
from mltta.output.tags_journal import OTHERWISE
from mltta.storage.checksums import of_bytes, sealed, unsealed
from mltta.storage.folders import Folder, is_remote

FORMAT, MANIFEST = "mltta-partitions-2", "_manifest.json"
#: of version 0.2.0, whose parts are read but not continued: another rule said there which labels are present
OLD = "mltta-partitions-1"
#: seconds between two writings of the manifest: what a kill of the driver can cost
OFTEN = 2.0


@dataclass(frozen=True)
class Part:
    """A shard that is done: its file's length and checksum, and how it was made."""

    shard: int
    size: int
    crc32: str
    images: int
    failed: int
    #: how many photos were worked on side by side, and for how long
    threads: int
    seconds: float

    @property
    def name(self) -> str:
        return part_name(self.shard)


def part_name(shard: int) -> str:
    """The file of a shard."""
    return f"part-{shard:07}.parquet"


class Partitions:
    """A folder of partitions, near or far, and what its manifest says of it."""

    def __init__(self, address: str):
        self.folder = Folder(address)
        #: what it was begun with; None: there is no manifest yet
        self.settings: dict[str, Any] | None = None
        #: shards there are to be, and those that are done
        self.count = 0
        self.parts: dict[int, Part] = {}
        self._saved, self._took, self._old = 0.0, 0.0, False
        try:
            content = self.folder.read(MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            return
        held = unsealed(content, FORMAT) or unsealed(content, OLD)
        if held is None:
            said = f"{self.folder}/{MANIFEST} is damaged, so nothing is known of its parts; {OTHERWISE}"
            raise MlttaError(said)
        self.settings, self.count, self._old = held["settings"], held["shards"], held["format"] == OLD
        self.parts = {one["shard"]: Part(**one) for one in held["parts"]}

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Go on with what was begun with the same settings, or start; other settings are refused."""
        if self._old:
            said = "was begun by version 0.2.0, which this version can read but not resume"
            raise MlttaError(f"{self.folder} {said}; {OTHERWISE}")
        if self.settings is not None:
            refuse_others(str(self.folder), self.settings, settings)
            return
        if strangers := [name for name in self.folder.names() if name[:1] not in "_."]:
            said = f"but no {MANIFEST}, so --ray did not begin it; give another -o"
            raise MlttaError(f"{self.folder} holds {strangers[0]} {said}")
        self.settings = json.loads(json.dumps(settings))

    def planned(self, count: int) -> None:
        """Say how many shards there are to be."""
        self.count = count
        self.save()

    def add(self, part: Part) -> None:
        """A shard is done; the manifest is written now and then."""
        self.parts[part.shard] = part
        if time.monotonic() - self._saved > max(OFTEN, 20 * self._took):
            self.save()

    def save(self) -> None:
        """Write the manifest, whole."""
        start = time.monotonic()
        parts = [asdict(self.parts[shard]) for shard in sorted(self.parts)]
        held = {"format": FORMAT, "shards": self.count, "settings": self.settings, "parts": parts}
        self.folder.write(MANIFEST, json.dumps(sealed(held)).encode())
        self._saved = time.monotonic()
        self._took = self._saved - start

    @property
    def images(self) -> int:
        """Photos in the parts that are done."""
        return sum(part.images for part in self.parts.values())

    def records(self) -> Iterator[Record]:
        """Every photo's record, in the order of the sources; a part that is not what was written is refused."""
        if len(self.parts) < self.count:
            done = f"{len(self.parts):,} of {self.count:,} shards are done"
            raise MlttaError(f"{self.folder} is not finished: {done}; rerun the command that began it")
        _, parquet = open_pyarrow()
        for _, part in sorted(self.parts.items()):
            if (content := whole_part(self.folder, part)) is None:
                said = "is missing or damaged; rerun the command that wrote it, which redoes it alone"
                raise MlttaError(f"{self.folder}/{part.name} {said}")
            for row in parquet.read_table(io.BytesIO(content)).to_pylist():
                if row["error"] is not None:
                    yield {"image": row["image"], "error": row["error"]}
                    continue
                shown = zip(row["labels"], row["scores"], strict=True)
                labels = [{"label": label, "score": score} for label, score in shown]
                yield {"image": row["image"], "present": row["labels"], "labels": labels}


def whole_part(folder: Folder, part: Part) -> bytes | None:
    """A shard's file, if it is the one that the manifest knows."""
    with suppress(OSError):
        content = folder.read(part.name)
        if len(content) == part.size and f"{of_bytes(content):08x}" == part.crc32:
            return content
    return None


def part_bytes(records: Iterable[Record]) -> bytes:
    """A shard's file; the same records give the same bytes."""
    held = io.BytesIO()
    write_parquet(held, records, Page(Path(), 0, (), wide=True))
    return held.getvalue()


def is_partitions(path: Path | str) -> bool:
    """Whether a folder, near or far, holds partitions that can be read back."""
    remote = is_remote(str(path))
    return MANIFEST in Folder(str(path)).names() if remote else Path(path, MANIFEST).is_file()
