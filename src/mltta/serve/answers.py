"""Tags as API responses and as files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from mltta.output.formats import text_format
from mltta.output.keywords.write import new_sidecar
from mltta.output.sorting import safe_name
from mltta.storage.reading import unwritable
from mltta.tagger import Tags


def image_answer(
    tags: Tags, ms: float, *, all: bool = False, where: bool = False, captions: bool = False
) -> dict[str, Any]:
    """Build one image's entry, with the fields requested."""
    if tags.error is not None:
        return {"image": tags.image, "error": tags.error}
    labels = list(tags) if all else tags.shown
    entry = {"image": tags.image, "present": tags.present, "labels": labels, "ms": round(ms, 1)}
    entry["keywords"] = tags.keywords
    if tags.note is not None:
        entry["note"] = tags.note
    if where:
        entry["where"] = {label: _heat(grid) for label, grid in tags.where.items()}
    if captions:
        entry["captions"] = {
            label: [{"text": text, "similarity": round(near, 4)} for text, near in said]
            for label, said in tags.captions.items()
        }
    return entry


def _heat(grid: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> dict[str, Any]:
    values = np.rint(255 * grid / max(float(grid.max()), 1e-12)).astype(int)
    return {"rows": values.shape[0], "columns": values.shape[1], "heat": values.ravel().tolist()}


def export(format: str, wide: bool, images: Sequence[Mapping[str, Any]]) -> tuple[bytes, str, str]:
    """Write entries to a file; returns its content, media type and name."""
    if format == "xmp":
        return _sidecars(images), "application/zip", "keywords.zip"
    lines = text_format(format, wide)
    assert lines is not None
    text = "".join(lines.pieces(map(_record, images)))
    kind = "text/csv" if format == "csv" else "application/json"
    return text.encode("utf-8", "replace"), kind, f"tags.{format}"


def _record(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A file's record of an entry: only labels that are shown."""
    here = set(entry.get("present") or ())
    shown = [item for item in entry.get("labels") or () if item["label"] in here]
    present = [item["label"] for item in shown]
    return Tags(shown, present=present, image=entry["image"], error=entry.get("error")).record()


def _sidecars(entries: Sequence[Mapping[str, Any]]) -> bytes:
    """A zip with an XMP sidecar for each photo with labels, to unpack next to the photos."""
    content = io.BytesIO()
    taken: set[str] = set()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            given = entry.get("present") if entry.get("keywords") is None else entry["keywords"]
            if keywords := [_clean(word) for word in given or ()]:
                archive.writestr(_path(entry["image"], taken), new_sidecar(keywords))
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
