"""Build a training set from repositories of labeled photos.

    python -m training.gather --repositories CLONES --check VOC COCO --out LABELED

CLONES contains git directories named owner+name. Repositories that are missing are reported and left out. The
command is resumable, and its output depends neither on the number of workers nor on the order of the photos.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training import meanings, repository, scans, selection, shards, sheets, sources
from training.scans import Map, Photo
from training.sources import Source

HELD_OUT = 0.05


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
    facts = {"photo": f"{photo.blob}.jpg", "labels": photo.labels, "unknown": photo.unknown}
    more = {"terms": photo.terms, "source": photo.source, "also": photo.sources}
    return {**facts, **more, "group": photo.group, "held_out": photo.held_out}


def about(source: Source) -> dict[str, Any]:
    """What is written about a source: names in `annotates` that a photo has not are absent from it."""
    facts = {"source": source.repository, "commit": source.commit, "license": source.license}
    known = sorted(meanings.annotated(source))
    return {**facts, "group": source.group, "absent": source.absent, "annotates": known}


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
            photos += scans.scan(by[name], place, out / "scans", each)
            print(f"{name}: {len(photos)} photos so far", flush=True)
    hits = selection.check(photos, scans.kept_aside(aside))
    selection.merge(photos, by)
    selection.cap(photos, by, per_source, per_label)
    selection.hold_out(photos, share)
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
    parser.add_argument(
        "--per-source", type=int, default=500, help="photos per label and source (default: 500)"
    )
    parser.add_argument("--per-label", type=int, default=1500, help="photos per label (default: 1500)")
    parser.add_argument(
        "--hold-out", type=float, default=HELD_OUT, help="share of each source (default: 0.05)"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument(
        "--sheets", type=int, default=0, help="pictures per contact sheet (default: no sheets)"
    )
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
        sheets.write(args.out / "sheets", photos, args.repositories, args.sheets)
    print(table(result))
    print(f"{len(result['missing'])} of {len(manifest)} repositories are missing in {args.repositories}")


if __name__ == "__main__":
    main()
