"""Select photos: none that is kept aside, each picture once, so many per label, some held out."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from training import hashes, meanings
from training.scans import Photo
from training.sources import Source

SAME = 2  # bits in which the hashes of the same picture differ at most
SIMILAR = 6  # of pictures that are held out together
COPIES = 1  # of photos in the sets to check against, for which a whole source is dropped


def check(
    photos: Sequence[Photo], aside: Sequence[tuple[str, int, bytes]], copies: int = COPIES
) -> list[dict[str, Any]]:
    """Mark photos that are also in the sets kept aside, and all photos of sources with copies of them."""
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
        if photo.fault is None and confirmed[photo.source] >= copies:
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
    here: Counter[tuple[str, str]] = Counter()  # of each source, by its own term
    there: Counter[str] = Counter()
    for photo in sorted((p for p in photos if p.fault is None), key=lambda p: p.blob):
        source, label = by[photo.source], meanings.name_of(photo.terms[0])
        if source.absent == "all":
            continue
        own = photo.source, photo.terms[0]
        if here[own] >= per_source or there[label] >= per_label:
            photo.fault = "over the limit"
        else:
            here[own] += 1
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
