"""Tags as the API answers them, and as files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from mltta.errors import ImageError
from mltta.output.formats import text_format
from mltta.output.keywords.xmp import Packet
from mltta.serve.engine import Answered
from mltta.serve.schema import Caption, ExportCall, Heat, ImageOut, Label, TagCall


def image_answer(name: str, found: Answered | ImageError, asked: TagCall) -> ImageOut:
    """One image's entry: what the call asked to see of it."""
    error = str(found) if isinstance(found, ImageError) else found.tags.error
    if isinstance(found, ImageError) or error is not None:
        return ImageOut(image=name, error=error)
    tags = found.tags
    return ImageOut(
        image=name,
        present=tags.present,
        labels=[Label(**item) for item in (tags if asked.all else tags.shown)],
        where={label: _heat(grid) for label, grid in tags.where.items()} if asked.where else None,
        captions={
            label: [Caption(text=text, similarity=round(near, 4)) for text, near in said]
            for label, said in tags.captions.items()
        }
        if asked.captions
        else None,
        ms=round(found.ms, 1),
    )


def _heat(grid: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Heat:
    values = np.rint(255 * grid / max(float(grid.max()), 1e-12)).astype(int)
    return Heat(rows=values.shape[0], columns=values.shape[1], heat=values.ravel().tolist())


def export(asked: ExportCall) -> tuple[bytes, str, str]:
    """A file of answers, its media type and its name."""
    if asked.format == "xmp":
        return _sidecars(asked.images), "application/zip", "keywords.zip"
    lines = text_format(asked.format, asked.wide)
    assert lines is not None
    text = "".join(lines.pieces(map(_record, asked.images)))
    kind = {"csv": "text/csv", "json": "application/json"}[asked.format]
    return text.encode("utf-8", "replace"), kind, f"tags.{asked.format}"


def _record(entry: ImageOut) -> dict[str, Any]:
    """What files hold of an entry: of all labels, those that are shown."""
    if entry.error is not None:
        return {"image": entry.image, "error": entry.error}
    here = set(entry.present or ())
    shown = [item.model_dump() for item in entry.labels or () if item.label in here]
    return {"image": entry.image, "present": [item["label"] for item in shown], "labels": shown}


def _sidecars(entries: Sequence[ImageOut]) -> bytes:
    """A zip with a sidecar for each photo that shows something, to be unpacked beside the photos."""
    content = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            if entry.error is None and entry.present:
                packet = Packet(None, entry.image)
                packet.set([_clean(label) for label in entry.present])
                archive.writestr(_path(entry.image, taken), packet.sidecar())
    return content.getvalue()


def _path(image: str, taken: set[str]) -> str:
    """A path inside the archive that leads nowhere else, whatever the photo is called."""
    parts = [_clean(part) for part in PurePosixPath(image.replace("\\", "/")).parts]
    path = "/".join(part.replace(":", "_") for part in parts if part.strip("./ ")) or "photo"
    number, found = 2, f"{path}.xmp"
    while found in taken:
        found, number = f"{path}-{number}.xmp", number + 1
    taken.add(found)
    return found


def _clean(text: str) -> str:
    """Text without characters that neither XML nor a file name can hold."""
    return "".join(
        "_" if ord(c) < 32 or 0xD800 <= ord(c) < 0xE000 or ord(c) in (0xFFFE, 0xFFFF) else c for c in text
    )
