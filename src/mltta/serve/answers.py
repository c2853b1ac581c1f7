"""What was found, as the API says it, and written down as files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

import numpy as np

from mltta.errors import ImageError
from mltta.output.keywords.xmp import Packet
from mltta.output.lines import csv_lines, json_lines
from mltta.output.records import Record
from mltta.serve.engine import Answered
from mltta.serve.schema import Caption, ExportCall, Heat, ImageOut, Label, TagCall, Written


def image_answer(name: str, found: Answered | ImageError, asked: TagCall) -> ImageOut:
    """One image's entry: what the call asked to be shown of it."""
    if isinstance(found, ImageError):
        return ImageOut(image=name, error=str(found))
    tags, ms = found
    if tags.error is not None:
        return ImageOut(image=name, error=tags.error)
    picky = asked.top_k is not None or asked.threshold is not None
    shown = tags if asked.all else tags.top(asked.top_k, asked.threshold) if picky else tags.shown
    return ImageOut(
        image=name,
        present=tags.present,
        labels=[Label(**item) for item in shown],
        where={label: _heat(grid) for label, grid in tags.where.items()} if asked.where else None,
        captions={label: _captions(said) for label, said in tags.captions.items()}
        if asked.captions
        else None,
        ms=round(ms, 1),
    )


def _heat(grid: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Heat:
    values = np.rint(255 * grid / max(float(grid.max()), 1e-12)).astype(int)
    return Heat(rows=values.shape[0], columns=values.shape[1], heat=values.ravel().tolist())


def _captions(said: Iterable[tuple[str, float]]) -> list[Caption]:
    return [Caption(text=text, similarity=round(similarity, 4)) for text, similarity in said]


def export(asked: ExportCall) -> tuple[bytes, str, str]:
    """A file of answers, its media type and its name."""
    if asked.format == "xmp":
        return _sidecars(asked.images), "application/zip", "keywords.zip"
    lines = csv_lines(asked.wide) if asked.format == "csv" else json_lines()
    text = "".join(lines.pieces(map(_record, asked.images)))
    return (
        text.encode("utf-8", "replace"),
        {"csv": "text/csv", "json": "application/json"}[asked.format],
        (f"tags.{asked.format}"),
    )


def _record(entry: Written) -> Record:
    if entry.error is not None:
        return {"image": entry.image, "error": entry.error}
    return {
        "image": entry.image,
        "present": entry.present,
        "labels": [item.model_dump() for item in entry.labels],
    }


def _sidecars(entries: Sequence[Written]) -> bytes:
    """A zip with a sidecar for each photo that shows something, to be unpacked beside the photos."""
    content = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            if entry.error is None and entry.present:
                packet = Packet(None, entry.image)
                packet.set([_clean(label) for label in entry.present])
                archive.writestr(_place(entry.image, taken), packet.sidecar())
    return content.getvalue()


def _place(image: str, taken: set[str]) -> str:
    """A path inside the archive that leads nowhere else, whatever the photo was called."""
    parts = [_clean(part) for part in PurePosixPath(image.replace("\\", "/")).parts]
    kept = [part.replace(":", "_") for part in parts if part.strip("./ ")]
    path = "/".join(kept) or "photo"
    number, found = 2, f"{path}.xmp"
    while found in taken:
        found, number = f"{path}-{number}.xmp", number + 1
    taken.add(found)
    return found


def _clean(text: str) -> str:
    """Text without what neither XML nor a file's name can hold."""
    return "".join(
        "_" if ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 or ord(c) in (0xFFFE, 0xFFFF) else c for c in text
    )
