"""The photos of a run in numbered shards: the same source gives the same shards, and no list of all is in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mltta.distributed.listing import Listing, Name, Rows
from mltta.errors import MlttaError
from mltta.storage.checksums import CHECKSUM, of_bytes, of_data, sealed
from mltta.storage.filesystems import Folder

FORMAT, PLAN, LISTS = "mltta-plan-1", "_plan.json", "_lists"
#: photos of the first shards, how many shards are of a size before the next are twice as large, and of the largest
SMALLEST, STEPS, LARGEST = 32, 16, 1024


@dataclass(frozen=True)
class Shard:
    """What one worker does at a time: a list of names, some rows of a file or a dataset, or a tar."""

    number: int
    kind: str
    base: str
    of: str
    start: int
    count: int
    crc32: str = ""


@dataclass(frozen=True)
class Plan:
    """Every shard of a run, and a line about files that were passed over."""

    shards: list[Shard]
    skipped: str = ""

    @property
    def images(self) -> int:
        """Photos, as far as they are counted before they are read."""
        return sum(shard.count for shard in self.shards)


def shard_size(number: int, fixed: int | None = None) -> int:
    """Photos of a shard: few in the first, so that a small folder keeps all workers busy, many in the thousandth.

    Example:
        >>> [shard_size(number) for number in (0, 15, 16, 80, 100_000)]
        [32, 32, 64, 1024, 1024]
    """
    return fixed or min(LARGEST, SMALLEST << min(number // STEPS, 20))


def make_plan(given: Sequence[str], folder: Folder, fixed: int | None = None) -> Plan:
    """The plan that the folder holds for these sources, or a new one, written down as it is made."""
    said = {"format": FORMAT, "sources": list(given), "shard size": fixed}
    held = read_plan(folder)
    if held is not None:
        if any(held[name] != value for name, value in said.items()):
            raise MlttaError(
                f"{folder} was begun with {', '.join(held['sources'])} in shards of "
                f"{held['shard size'] or 'growing size'}: give the same again, another -o, or --overwrite to start anew"
            )
        return Plan([Shard(**one) for one in held["shards"]], held["skipped"])
    listing = Listing(given)
    shards = list(_shards(listing, folder, fixed))
    if not shards:
        also = f"; {listing}" if str(listing) else ""
        raise MlttaError(f"no images in {', '.join(given)}{also}")
    whole = {**said, "skipped": str(listing), "shards": [asdict(shard) for shard in shards]}
    folder.write(PLAN, json.dumps(sealed(whole)).encode())
    return Plan(shards, str(listing))


def read_plan(folder: Folder) -> dict[str, Any] | None:
    """A plan as it was written; None where there is none, or none that is whole."""
    try:
        held = json.loads(folder.read(PLAN))
        return held if held["format"] == FORMAT and held[CHECKSUM] == of_data(held) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def names_of(shard: Shard, folder: Folder) -> list[str]:
    """The names that a shard of names lists."""
    try:
        content = folder.read(_list(shard.number))
    except FileNotFoundError:
        content = b""
    if f"{of_bytes(content):08x}" != shard.crc32:
        raise MlttaError(
            f"{folder}/{_list(shard.number)} is missing or damaged: its photos are not known; --overwrite starts anew"
        )
    names: list[str] = json.loads(content)
    return names


def _shards(pieces: Listing, folder: Folder, fixed: int | None) -> Iterator[Shard]:
    number, base = 0, ""
    names: list[str] = []

    def listed() -> Shard:
        content = json.dumps(names).encode()
        folder.write(_list(number), content)
        return Shard(number, "names", base, "", 0, len(names), f"{of_bytes(content):08x}")

    for piece in pieces:
        if names and (
            isinstance(piece, Rows) or piece.base != base or len(names) == shard_size(number, fixed)
        ):
            yield listed()
            number, names = number + 1, []
        if isinstance(piece, Name):
            base = piece.base
            names.append(piece.name)
        elif piece.kind == "tar":
            yield Shard(number, "tar", piece.base, piece.of, 0, 0)
            number += 1
        else:
            start = 0
            while start < piece.count:
                count = min(shard_size(number, fixed), piece.count - start)
                yield Shard(number, piece.kind, piece.base, piece.of, start, count)
                number, start = number + 1, start + count
    if names:
        yield listed()


def _list(number: int) -> str:
    return f"{LISTS}/{number:07}.json"
