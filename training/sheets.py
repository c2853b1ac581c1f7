"""Contact sheets of the photos kept and of what each filter drops, to look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from training import repository
from training.scans import Photo, opened

TILE, COLUMNS = 120, 12


def write(out: Path, photos: Sequence[Photo], clones: Path, most: int) -> None:
    """Write one PNG for the photos kept and one for each fault, with at most so many pictures."""
    out.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, list[Photo]] = defaultdict(list)
    for photo in sorted(photos, key=lambda p: p.blob):
        kinds[photo.fault or "kept"].append(photo)
    for kind, own in kinds.items():
        if kind not in ("missing", "unreadable", "large file", "repeated"):
            sheet(own[:most], clones).save(out / f"{kind.replace(' ', '-')}.png")


def sheet(photos: Sequence[Photo], clones: Path) -> Image.Image:
    """Some photos in rows, each above its first term."""
    page = Image.new("RGB", (COLUMNS * TILE, -(-len(photos) // COLUMNS) * TILE), "gray")
    pen = ImageDraw.Draw(page)
    for i, photo in enumerate(photos):
        directory = repository.find(clones, photo.source)
        data = next(repository.read(directory, [photo.blob]))[1] if directory else None
        if data is not None:
            image = opened(data, TILE)[0].convert("RGB")
            image.thumbnail((TILE - 4, TILE - 16))
            x, y = i % COLUMNS * TILE, i // COLUMNS * TILE
            page.paste(image, (x + 2, y + 2))
            name = photo.terms[0].encode("ascii", "replace").decode()
            pen.text((x + 2, y + TILE - 13), name[: TILE // 6], fill="yellow")
    return page
