"""Tags as API responses and as files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from mltta.output.formats import text_format
from mltta.output.keywords.write import new_sidecar
from mltta.output.sorting import safe_name
from mltta.serve.engine import Answered
from mltta.serve.schema import Caption, ExportCall, Heat, ImageOut, Label, TagCall
from mltta.storage.reading import unwritable
from mltta.tagger import Tags


def image_answer(found: Answered, asked: TagCall) -> ImageOut:
    """Build one image's entry, with the fields requested by the call."""
    tags = found.tags
    if tags.error is not None:
        return ImageOut(image=tags.image, error=tags.error)
    labels = [Label(**item) for item in (tags if asked.all else tags.shown)]
    answer = ImageOut(image=tags.image, present=tags.present, labels=labels, ms=round(found.ms, 1))
    answer.keywords = tags.keywords
    answer.note = tags.note
    if asked.where:
        answer.where = {label: _heat(grid) for label, grid in tags.where.items()}
    if asked.captions:
        answer.captions = {
            label: [Caption(text=text, similarity=round(near, 4)) for text, near in said]
            for label, said in tags.captions.items()
        }
    return answer


def _heat(grid: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Heat:
    values = np.rint(255 * grid / max(float(grid.max()), 1e-12)).astype(int)
    return Heat(rows=values.shape[0], columns=values.shape[1], heat=values.ravel().tolist())


def export(asked: ExportCall) -> tuple[bytes, str, str]:
    """Write results to a file; returns its content, media type and name."""
    if asked.format == "xmp":
        return _sidecars(asked.images), "application/zip", "keywords.zip"
    lines = text_format(asked.format, asked.wide)
    assert lines is not None
    text = "".join(lines.pieces(map(_record, asked.images)))
    kind = "text/csv" if asked.format == "csv" else "application/json"
    return text.encode("utf-8", "replace"), kind, f"tags.{asked.format}"


def _record(entry: ImageOut) -> dict[str, Any]:
    """A file's record of an entry: only labels that are shown."""
    here = set(entry.present or ())
    shown = [item.model_dump() for item in entry.labels or () if item.label in here]
    return Tags(shown, present=[x["label"] for x in shown], image=entry.image, error=entry.error).record()


def _sidecars(entries: Sequence[ImageOut]) -> bytes:
    """A zip with an XMP sidecar for each photo with labels, to unpack next to the photos."""
    content = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            if keywords := [
                _clean(word) for word in (entry.present if entry.keywords is None else entry.keywords) or ()
            ]:
                archive.writestr(_path(entry.image, taken), new_sidecar(keywords))
    return content.getvalue()


def _path(image: str, taken: set[str]) -> str:
    """A path inside the archive that cannot escape it, whatever the photo's name."""
    parts = (_clean(part) for part in PurePosixPath(image.replace("\\", "/")).parts)
    path = "/".join(safe_name(part, 240) for part in parts if part.strip("./ ")) or "photo"
    number, found = 2, f"{path}.xmp"
    while found in taken:
        found, number = f"{path}-{number}.xmp", number + 1
    taken.add(found)
    return found


def _clean(text: str) -> str:
    """Text without characters that are invalid in XML or file names."""
    return "".join("_" if unwritable(c) else c for c in text)
