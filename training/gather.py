"""Build a training set from repositories of labeled photos.

    python -m training.gather --repositories CLONES --check VOC COCO --out LABELED

CLONES contains git directories named owner+name. Repositories that are missing are reported and left out. The
command is resumable, and its output depends neither on the number of workers nor on the order of the photos.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from training import filters, hashes, meanings, repository, shards, sources
from training.sources import Source

CHUNK = 200  # photos that a process examines at a time
LARGEST = 40 * 2**20  # bytes of a file
SAME = 2  # bits in which the hashes of the same picture differ at most
SIMILAR = 6  # of pictures that are held out together
SEVERAL = 3  # photos in the sets to check against for which a source is dropped
HELD_OUT = 0.05
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
    """A picture, upright and not much larger than needed, and its size in the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        size = image.size
        image.draft("RGB", (2 * short, 2 * short))
        image.load()
        return ImageOps.exif_transpose(image), size


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
    code = b"".join(Path(m.__file__).read_bytes() for m in (filters, hashes, sources) if m.__file__)
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
    chunks = [photos[i : i + CHUNK] for i in range(0, len(photos), CHUNK)]
    done = [photo for chunk in each(partial(examine, directory, source.size), chunks) for photo in chunk]
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


def check(photos: Sequence[Photo], aside: Sequence[tuple[str, int, bytes]]) -> list[dict[str, Any]]:
    """Mark photos that are also in the sets kept aside, and all photos of sources with several of them."""
    good = [photo for photo in photos if photo.fault is None]
    others = np.array([own for _, own, _ in aside], np.uint64)
    hits = []
    for i, j, distance in hashes.nearest(_hashes(good), others, SAME):
        good[i].fault = "kept aside"
        same = hashes.alike(bytes.fromhex(good[i].thumbnail), aside[j][2])
        hit = {"source": good[i].source, "path": good[i].path, "like": aside[j][0]}
        hits.append({**hit, "distance": int(distance), "same_colors": same})
    confirmed = Counter(source for source, _ in {(h["source"], h["path"]) for h in hits if h["same_colors"]})
    for photo in photos:
        if photo.fault is None and confirmed[photo.source] >= SEVERAL:
            photo.fault = "source kept aside"
    return hits


def _hashes(photos: Sequence[Photo]) -> hashes.Hashes:
    return np.array([photo.hash for photo in photos], np.uint64)


def merge(photos: Sequence[Photo], by: dict[str, Source]) -> None:
    """Mark all but one photo of each picture as repeated; that one receives the terms of all.

    A picture that one source shows under two classes that exclude each other is dropped.
    """
    good = sorted((p for p in photos if p.fault is None), key=lambda p: (p.blob, p.source, p.path))
    found = hashes.pairs(_hashes(good), SAME)
    linked = [(int(i), int(j)) for i, j, _ in found if _alike(good[i], good[j])]
    members: dict[int, list[Photo]] = defaultdict(list)
    for photo, first in zip(good, hashes.groups(len(good), linked), strict=True):
        members[first].append(photo)
    for own in members.values():
        best = max(own, key=lambda p: (p.width * p.height, p.blob, p.source, p.path))
        exclusive = {(p.source, p.terms[0]) for p in own if by[p.source].absent == "classes"}
        contradiction = len(exclusive) > len({source for source, _ in exclusive})
        for photo in own:
            if contradiction:
                photo.fault = "two classes"
            elif photo is not best:
                photo.fault = "repeated" if photo.blob == best.blob else "nearly repeated"
        best.sources = sorted({p.source for p in own} - {best.source})
        best.labels = sorted({name for p in own for name in meanings.labels(p.terms)})
        open_names = {name for p in own for name in meanings.unknown(by[p.source], p.terms)}
        best.unknown = sorted(open_names - set(best.labels))
        best.terms = list(dict.fromkeys(term for p in (best, *own) for term in p.terms))


def _alike(one: Photo, other: Photo) -> bool:
    return hashes.alike(bytes.fromhex(one.thumbnail), bytes.fromhex(other.thumbnail))


def cap(photos: Sequence[Photo], by: dict[str, Source], per_source: int, per_label: int) -> None:
    """Limit the photos of each label in each source and in all, the lowest checksums first.

    Photos of sources that give all labels count for none.
    """
    here: Counter[tuple[str, str]] = Counter()
    there: Counter[str] = Counter()
    for photo in sorted((p for p in photos if p.fault is None), key=lambda p: p.blob):
        source, label = by[photo.source], meanings.name_of(photo.terms[0])
        if source.absent == "all":
            continue
        limit = min(per_source, source.cap or per_source)
        if here[photo.source, label] >= limit or there[label] >= per_label:
            photo.fault = "over the limit"
        else:
            here[photo.source, label] += 1
            there[label] += 1


def hold_out(photos: Sequence[Photo], share: float) -> None:
    """Hold out at least a share of each source, similar pictures together, by checksum."""
    good = sorted((p for p in photos if p.fault is None), key=lambda p: p.blob)
    found = hashes.pairs(_hashes(good), SIMILAR)
    linked = [(int(i), int(j)) for i, j, _ in found if _alike(good[i], good[j])]
    groups: dict[str, list[Photo]] = defaultdict(list)
    for photo, first in zip(good, hashes.groups(len(good), linked), strict=True):
        photo.group = good[first].blob
        groups[photo.group].append(photo)
    order = sorted(groups, key=lambda blob: hashlib.sha256(blob.encode()).digest())
    total, held = Counter(photo.source for photo in good), Counter[str]()
    for blob in order:
        if any(held[p.source] < share * total[p.source] for p in groups[blob]):
            for photo in groups[blob]:
                photo.held_out = True
                held[photo.source] += 1


def report(photos: Sequence[Photo], found: Sequence[Source], missing: Sequence[str]) -> dict[str, Any]:
    """Counts per source and label."""
    per: dict[str, Counter[str]] = {source.repository: Counter() for source in found}
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    for photo in photos:
        per[photo.source]["found"] += 1
        if photo.fault:
            per[photo.source][photo.fault] += 1
            continue
        part = "held out" if photo.held_out else "train"
        per[photo.source][part] += 1
        for label in photo.labels:
            labels[label][part] += 1
    counts = {name: dict(own) for name, own in sorted(per.items())}
    total = sum((Counter(own) for own in counts.values()), Counter[str]())
    by_label = {name: dict(own) for name, own in sorted(labels.items())}
    return {"total": dict(total), "sources": counts, "labels": by_label, "missing": list(missing)}


def table(result: dict[str, Any]) -> str:
    """The counts per source as a table."""
    faults = sorted(set(result["total"]) - {"found", "train", "held out"})
    columns = ["found", "train", "held out", *faults]
    rows = [*result["sources"].items(), ("total", result["total"])]
    lines = ["| source | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    lines += [f"| {name} | " + " | ".join(str(own.get(c, 0)) for c in columns) + " |" for name, own in rows]
    return "\n".join(lines)


def record(photo: Photo) -> dict[str, Any]:
    """What is written about a photo beside it."""
    facts = {"photo": f"{photo.blob}.webp", "labels": photo.labels, "unknown": photo.unknown}
    more = {"terms": photo.terms, "source": photo.source, "also": photo.sources}
    return {**facts, **more, "group": photo.group, "held_out": photo.held_out}


def about(source: Source) -> dict[str, Any]:
    """What is written about a source: names in `annotates` that a photo has not are absent from it."""
    facts = {"source": source.repository, "commit": source.commit, "licence": source.licence}
    return {**facts, "group": source.group, "annotates": sorted(meanings.annotated(source))}


def gather(
    manifest: Sequence[Source], clones: Path, aside: Sequence[Path], out: Path, each: Map = map, *,
    short: int = 224, per_source: int = 500, per_label: int = 1500, share: float = HELD_OUT, piece: int = shards.PIECE,
) -> tuple[dict[str, Any], list[Photo]]:  # fmt: skip
    """Write shards, `sources.json` and `report.json`; returns the report and all photos.

    Args:
        manifest: the sources.
        clones: folder of git directories.
        aside: folders of pictures that must not be trained on.
        each: `map`, or that of a pool of processes.
        short: short side of the photos written.
        per_source, per_label: limits per label, in each source and in all.
        share: of each source, at least, that is held out.
        piece: bytes of the largest shard.
    """
    out.mkdir(parents=True, exist_ok=True)
    by = {source.repository: source for source in manifest}
    places = {name: repository.find(clones, name) for name in by}
    photos: list[Photo] = []
    for name, place in places.items():
        if place is not None:
            photos += scan(by[name], place, out / "scans", each)
            print(f"{name}: {len(photos)} photos so far", flush=True)
    hits = check(photos, kept_aside(aside))
    merge(photos, by)
    cap(photos, by, per_source, per_label)
    hold_out(photos, share)
    here = [by[name] for name, place in places.items() if place is not None]
    result = report(photos, here, [name for name, place in places.items() if place is None])
    chosen = sorted((p for p in photos if p.fault is None), key=lambda p: p.blob)
    work = [(str(places[p.source]), short, p.blob, record(p)) for p in chosen]
    result["shards"] = shards.write(out, work, each, piece)
    (out / "sources.json").write_text(json.dumps([about(source) for source in here], indent=1) + "\n")
    (out / "report.json").write_text(json.dumps({**result, "hits": hits}, indent=1) + "\n")
    (out / "report.md").write_text(table(result) + "\n")
    return result, photos


@contextmanager
def pool(workers: int) -> Iterator[Map]:
    """A `map` over some processes."""
    if workers <= 1:
        yield map
        return
    with ProcessPoolExecutor(workers) as executor:
        yield executor.map


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repositories", type=Path, required=True, help="folder of clones named owner+name")
    parser.add_argument(
        "--check", type=Path, nargs="+", required=True, help="folders of pictures that must not be trained on"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for shards and report")
    parser.add_argument("--manifest", type=Path, default=sources.MANIFEST)
    parser.add_argument("--only", nargs="+", help="owner/name of the sources to use (default: all)")
    parser.add_argument("--short", type=int, default=224, help="short side of the photos (default: 224)")
    parser.add_argument("--per-source", type=int, default=500, help="photos per label and source (default: 500)")
    parser.add_argument("--per-label", type=int, default=1500, help="photos per label (default: 1500)")
    parser.add_argument("--hold-out", type=float, default=HELD_OUT, help="share of each source (default: 0.05)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--sheets", type=int, default=0, help="pictures per contact sheet (default: no sheets)")
    args = parser.parse_args(argv)
    manifest = [s for s in sources.read(args.manifest) if not args.only or s.repository in args.only]
    if absent := [str(folder) for folder in args.check if not folder.is_dir()]:
        parser.error(f"no such folder: {', '.join(absent)}")
    with pool(args.workers) as each:
        result, photos = gather(
            manifest, args.repositories, args.check, args.out, each, short=args.short,
            per_source=args.per_source, per_label=args.per_label, share=args.hold_out,
        )  # fmt: skip
    if args.sheets:
        shards.sheets(args.out / "sheets", photos, args.repositories, args.sheets)
    print(table(result))
    print(f"{len(result['missing'])} of {len(manifest)} repositories are missing in {args.repositories}")


if __name__ == "__main__":
    main()
