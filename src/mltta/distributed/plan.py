"""Divides a run's photos into numbered shards: the same for the same sources, without a full list in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby, islice

from mltta.distributed.listing import Listing
from mltta.errors import MlttaError
from mltta.storage.checksums import CHECKSUM, of_bytes, sealed, unsealed
from mltta.storage.folders import Folder
from mltta.storage.reading import parse_json
from mltta.storage.rules import list_of, optional, table, text, whole

FORMAT, PLAN, LISTS = "mltta-plan-1", "_plan.json", "_lists"
#: photos in the smallest shards, number of shards before the size doubles, and photos in the largest
SMALLEST, STEPS, LARGEST = 32, 16, 1024


_NAMES, _NAME, _COUNT = list_of(text(1 << 16), 10**7), text(1 << 16), whole(1 << 40)
_SHARD = table(
    dict.fromkeys(["kind", "base", "of", "crc32"], _NAME)
    | dict.fromkeys(["number", "start", "count"], _COUNT)
)
_PLAN = table(
    {"format": _NAME, "sources": _NAMES, "shard size": optional(_COUNT), "skipped": text(1 << 20)}
    | {"shards": list_of(_SHARD, 10**7), CHECKSUM: _NAME}
)


@dataclass(frozen=True)
class Shard:
    """Unit of work: a list of names, some rows of a file or dataset, or a tar."""

    number: int
    kind: str
    base: str
    of: str
    start: int
    count: int
    crc32: str = ""


@dataclass(frozen=True)
class Plan:
    """All shards of a run, and a note about skipped files."""

    shards: list[Shard]
    skipped: str = ""

    @property
    def images(self) -> int:
        """Number of photos that can be counted without reading them."""
        return sum(shard.count for shard in self.shards)


def shard_size(number: int, fixed: int | None = None) -> int:
    """Photos per shard: small at first, so that a small folder keeps all workers busy, then growing.

    Example:
        >>> [shard_size(number) for number in (0, 15, 16, 80, 100_000)]
        [32, 32, 64, 1024, 1024]
    """
    return fixed or min(LARGEST, SMALLEST << min(number // STEPS, 20))


def make_plan(given: Sequence[str], folder: Folder, fixed: int | None = None) -> Plan:
    """Load the saved plan for these sources, or create and save a new one."""
    said = {"format": FORMAT, "sources": list(given), "shard size": fixed}
    held = None
    with suppress(OSError):
        held = unsealed(folder.read(PLAN), FORMAT)
    if held is not None:
        if not _PLAN(held):
            raise MlttaError(f"{folder}/{PLAN} is intact, but not from `mltta tag --ray`; use another -o")
        if any(held[name] != value for name, value in said.items()):
            raise MlttaError(
                f"{folder} was created from {', '.join(held['sources'])} in shards of "
                f"{held['shard size'] or 'growing size'}: use the same settings, another -o, or --overwrite"
            )
        return Plan([Shard(**one) for one in held["shards"]], held["skipped"])
    shards = list(_shards(listing := Listing(given), folder, fixed))
    if not shards:
        raise MlttaError("; ".join(filter(None, (f"no images in {', '.join(given)}", str(listing)))))
    held = {**said, "skipped": str(listing), "shards": [asdict(shard) for shard in shards]}
    folder.write(PLAN, json.dumps(sealed(held)).encode())
    return Plan(shards, str(listing))


def names_of(shard: Shard, folder: Folder) -> list[str]:
    """Read the names in a shard of names."""
    content = b""
    with suppress(FileNotFoundError):
        content = folder.read(_list(shard.number))
    if f"{of_bytes(content):08x}" != shard.crc32:
        raise MlttaError(
            f"{folder}/{_list(shard.number)} is missing or damaged, so its photos are unknown; restart with --overwrite"
        )
    names = parse_json(content, f"{folder}/{_list(shard.number)}", MlttaError, "restart with --overwrite")
    if not _NAMES(names) or len(names) != shard.count:
        raise MlttaError(f"{folder}/{_list(shard.number)} is not a list of names; restart with --overwrite")
    return list(names)


def _shards(pieces: Listing, folder: Folder, fixed: int | None) -> Iterator[Shard]:
    number = 0
    for (base, one), group in groupby(pieces, lambda piece: (piece.base, piece.kind == "name")):
        while one and (names := [piece.of for piece in islice(group, shard_size(number, fixed))]):
            content = json.dumps(names).encode()
            folder.write(_list(number), content)
            yield Shard(number, "names", base, "", 0, len(names), f"{of_bytes(content):08x}")
            number += 1
        for piece in group:
            start = 0
            while start < piece.count or (start == 0 and piece.kind == "tar"):  # a tar is not counted
                count = min(shard_size(number, fixed), piece.count - start)
                yield Shard(number, piece.kind, piece.base, piece.of, start, count)
                number, start = number + 1, start + max(count, 1)


def _list(number: int) -> str:
    return f"{LISTS}/{number:07}.json"
