"""Write photos as shards: tar files of JPEG, each with a JSONL file, and a manifest of checksums."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from training import repository

PIECE = 60 * 10**6  # bytes of the largest shard
CHUNK = 100  # photos that a process writes at a time
BLOCK = 20_000  # photos that are read repository by repository, as each reading starts git
QUALITY = 72
Work = tuple[
    str, int, str, dict[str, Any]
]  # git directory, short side, blob, what is written about the photo


def encode(data: bytes, short: int) -> bytes:
    """A picture as JPEG, upright, with a short side of at most some pixels."""
    file = Image.open(io.BytesIO(data))
    file.draft("RGB", (short, short))
    image: Image.Image = ImageOps.exif_transpose(file).convert("RGB")
    scale = min(1.0, short / min(image.size))
    if scale < 1:
        width, height = (max(1, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _encoded(work: Sequence[Work]) -> list[tuple[bytes, dict[str, Any]]]:
    found: dict[int, bytes] = {}
    for directory in sorted({own[0] for own in work}):
        rows = [i for i, own in enumerate(work) if own[0] == directory]
        blobs = repository.read(Path(directory), [work[i][2] for i in rows])
        for i, (blob, data) in zip(rows, blobs, strict=True):
            if data is None:
                raise ValueError(f"{directory} no longer has the file {blob}: fetch it again")
            found[i] = encode(data, work[i][1])
    return [(found[i], own[3]) for i, own in enumerate(work)]


def _all_encoded(
    work: Sequence[Work], each: Callable[..., Iterable[Any]]
) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """All photos in their order."""
    for start in range(0, len(work), BLOCK):
        block = work[start : start + BLOCK]
        order = sorted(range(len(block)), key=lambda i: block[i][0])
        chunks = [[block[i] for i in order[k : k + CHUNK]] for k in range(0, len(order), CHUNK)]
        encoded = (own for chunk in each(_encoded, chunks) for own in chunk)
        found = dict(zip(order, encoded, strict=True))
        yield from (found[i] for i in range(len(block)))


def write(out: Path, work: Sequence[Work], each: Callable[..., Iterable[Any]], piece: int = PIECE) -> int:
    """Write all photos into shards of at most `piece` bytes; finished shards of the same photos are kept.

    Returns the number of shards.
    """
    text = json.dumps([(short, blob, facts, "JPEG", QUALITY, piece) for _, short, blob, facts in work])
    key = hashlib.sha256(text.encode()).hexdigest()
    manifest = out / "manifest.json"
    done: dict[str, Any] = {"key": key, "photos": [], "parts": {}}
    if manifest.exists() and (old := json.loads(manifest.read_text()))["key"] == key:
        done = old
    else:
        for stale in (*out.glob("photos-*.tar"), *out.glob("photos-*.jsonl")):
            stale.unlink()
    rest = work[sum(done["photos"]) :]
    shard: list[tuple[bytes, dict[str, Any]]] = []
    size = 10240  # the end of a tar file
    for photo in _all_encoded(rest, each):
        room = 512 + -(-len(photo[0]) // 512) * 512
        if shard and size + room > piece:
            _close(out, shard, done)
            shard, size = [], 10240
        shard.append(photo)
        size += room
    if shard:
        _close(out, shard, done)
    manifest.write_text(json.dumps(done, indent=1) + "\n")
    return len(done["photos"])


def _close(out: Path, shard: Sequence[tuple[bytes, dict[str, Any]]], done: dict[str, Any]) -> None:
    """Write one shard and enter it in the manifest."""
    name = f"photos-{len(done['photos']):03d}"
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for data, facts in shard:
            member = tarfile.TarInfo(facts["photo"])
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    lines = "".join(json.dumps(facts, ensure_ascii=False) + "\n" for _, facts in shard)
    for path, content in ((out / f"{name}.tar", tape.getvalue()), (out / f"{name}.jsonl", lines.encode())):
        path.write_bytes(content)
        done["parts"][path.name] = hashlib.sha256(content).hexdigest()
    done["photos"].append(len(shard))
    (out / "manifest.json").write_text(json.dumps(done, indent=1) + "\n")
