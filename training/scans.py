"""Examine the photos of a source: size, hash, and what is wrong with them."""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from training import filters, hashes, repository, sources
from training.sources import Source

CHUNK = 200  # photos that a process examines at a time
LARGEST = 40 * 2**20  # bytes of a file
Map = Callable[..., Iterable[Any]]


@dataclass
class Photo:
    """A labeled photo in a repository."""

    source: str
    blob: str
    path: str
    terms: list[str]
    width: int = 0
    height: int = 0
    hash: int = 0
    thumbnail: str = ""
    fault: str | None = None
    sources: list[str] = field(default_factory=list)  # others that have it
    labels: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    group: str = ""
    held_out: bool = False


def opened(data: bytes, short: int) -> tuple[Image.Image, tuple[int, int]]:
    """A picture, upright and less than twice as large as needed if it is a JPEG, and its size in the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        size = image.size
        image.draft("RGB", (short, short))
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return image, size


def examine(directory: Path, size: tuple[int, int] | None, photos: Sequence[Photo]) -> list[Photo]:
    """Fill in size, hash and fault of some photos of a repository."""
    for photo, (_, data) in zip(photos, repository.read(directory, [p.blob for p in photos]), strict=True):
        if data is None or len(data) > LARGEST:
            photo.fault = "missing" if data is None else "large file"
            continue
        try:
            image, (photo.width, photo.height) = opened(data, filters.SIDE)
            photo.fault = filters.fault(image, (photo.width, photo.height))
            photo.hash, photo.thumbnail = hashes.difference_hash(image), hashes.thumbnail(image).hex()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            photo.fault = "unreadable"
        if photo.fault is None and size not in (None, (photo.width, photo.height)):
            photo.fault = "size"
    return list(photos)


def scan(source: Source, directory: Path, out: Path, each: Map) -> list[Photo]:
    """All photos of a source, examined; a finished scan is read back."""
    files = (__file__, *(m.__file__ for m in (filters, hashes, sources) if m.__file__))
    code = b"".join(Path(file).read_bytes() for file in files)
    commit = repository.resolve(directory, source.commit) or ""
    key = hashlib.sha256(f"{source.key} {commit}".encode() + code).hexdigest()
    kept = out / f"{source.repository.replace('/', '+')}.json"
    if kept.exists() and (found := json.loads(kept.read_text(encoding="utf-8")))["key"] == key:
        return [Photo(**photo) for photo in found["photos"]]
    entries = repository.listing(directory, commit) if commit else []
    table = None
    if source.table:
        own = [entry.blob for entry in entries if entry.path == source.table["path"]]
        table = next((data for _, data in repository.read(directory, own)), None)
    terms = source.terms(entries, table)
    blobs = {entry.path: entry.blob for entry in entries}
    photos = [Photo(source.repository, blobs[path], path, list(own)) for path, own in sorted(terms.items())]
    first: set[tuple[str, ...]] = set()
    for photo in photos:
        photo.fault = "repeated" if (photo.blob, *photo.terms) in first else None
        first.add((photo.blob, *photo.terms))
    folders: dict[str, list[Photo]] = defaultdict(list)
    for photo in sorted((p for p in photos if p.fault is None), key=lambda p: p.blob):
        folders[photo.path.rpartition("/")[0]].append(photo)
    for members in folders.values():
        for photo in members[source.cap :] if source.cap else ():
            photo.fault = "over the limit"
    new, rest = ([p for p in photos if (p.fault is None) is fresh] for fresh in (True, False))
    chunks = [new[i : i + CHUNK] for i in range(0, len(new), CHUNK)]
    done = [photo for chunk in each(partial(examine, directory, source.size), chunks) for photo in chunk]
    done += rest
    kept.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"key": key, "photos": [asdict(photo) for photo in done]}, ensure_ascii=True)
    partial_file = kept.with_suffix(".partial")
    partial_file.write_text(text, encoding="utf-8")
    partial_file.replace(kept)
    return done


def kept_aside(folders: Iterable[Path]) -> list[tuple[str, int, bytes]]:
    """Name, hash and thumbnail of all pictures in some folders, as they are and mirrored."""
    found = []
    for path in sorted(p for f in folders for p in f.rglob("*") if p.suffix.lower() in sources.IMAGES):
        image, _ = opened(path.read_bytes(), filters.SIDE)
        for own in (image, ImageOps.mirror(image)):
            found.append((path.name, hashes.difference_hash(own), hashes.thumbnail(own)))
    return found
