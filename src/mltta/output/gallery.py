"""The gallery: one HTML page with all photos, filters and heat maps, which loads nothing from the network."""

from __future__ import annotations

import base64
import html
import io
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mltta.errors import MlttaError
from mltta.images.decode import load_image
from mltta.output.formats import NONE_SHOWN, Page, Record, printable
from mltta.output.picture import levels
from mltta.storage.atomic import refuse_links

_ASSETS = Path(__file__).parents[1] / "assets" / "gallery"
#: longer side of a thumbnail; number of thumbnails per chunk of the page
SIDE, CHUNK = 320, 200
#: maximum number of thumbnails embedded in the page; more are written to a folder beside it
INSIDE = 5_000


def for_gallery(photo: Path, where: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """Return the gallery data of a record: a thumbnail and the heat maps of its labels."""
    heat = {label: base64.b64encode(levels(grid).tobytes()).decode() for label, grid in where.items()}
    return {"thumbnail": thumbnail(photo)} | ({"where": heat} if heat else {})


def thumbnail(photo: Path) -> str:
    """Return a small WebP copy as base64."""
    small = load_image(photo).copy()
    small.thumbnail((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0)
    held = io.BytesIO()
    small.save(held, "WEBP", quality=70)
    return base64.b64encode(held.getvalue()).decode()


def thumbnail_folder(path: Path) -> Path:
    """Return the thumbnail folder of a large gallery."""
    return path.with_name(f"{path.stem}_thumbnails")


def write_gallery(part: Path, records: Iterable[Record], page: Page) -> None:
    """Write the page in chunks of photos: their rows and their thumbnails."""
    numbers = {label: number for number, label in enumerate(page.labels)}
    folder = thumbnail_folder(page.path) if page.count > INSIDE else None
    assets = (_ASSETS / name for name in ("page.html", "style.css", "script.js"))
    template, style, script = (asset.read_text(encoding="utf-8") for asset in assets)
    head = template.replace("{style}", style).replace("{title}", html.escape(page.path.stem))
    left = enumerate(records)
    with part.open("w", encoding="utf-8", newline="") as file:
        file.write(f'{head}<script type="application/json" id="names" data-chunk="{CHUNK}">')
        file.write(f"{_script(list(page.labels))}</script>\n")
        file.write(f'<script type="application/json" id="synonyms">{_script(list(page.synonyms))}</script>\n')
        while some := list(islice(left, CHUNK)):
            rows, thumbs = [], []
            for number, record in some:
                thumb, row = _thumbnail_of(record), _row(record, numbers, page.path.parent)
                if folder is not None and thumb != "-":
                    row["thumb"], thumb = _put(folder, number, thumb), "-"
                rows.append(_script(row))
                thumbs.append(thumb)
            file.write('<script type="application/json" class="rows">[' + ",\n".join(rows) + "]</script>\n")
            file.write('<script type="text/plain" class="thumbs">' + "\n".join(thumbs) + "</script>\n")
        file.write(f"<script>\n{script}</script>\n</body>\n</html>\n")


def _row(record: Record, numbers: Mapping[str, int], home: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": printable(record["image"]), "url": _url(record["image"], home)}
    if "error" in record:
        return row | {"labels": [], "error": printable(record["error"])}
    row["note"] = record.get("note", "" if record["labels"] else NONE_SHOWN)
    row["labels"] = [[numbers[item["label"]], round(item["score"], 4)] for item in record["labels"]]
    if record.get("where"):
        row["heat"] = {numbers[label]: grid for label, grid in record["where"].items()}
    return row


def _thumbnail_of(record: Record) -> str:
    """Return the stored thumbnail or a new one; "-" if there is none."""
    with suppress(MlttaError):  # the photo was removed
        if "error" not in record:
            return str(record.get("thumbnail") or thumbnail(Path(record["image"])))
    return "-"


def _put(folder: Path, number: int, thumb: str) -> str:
    """Write a thumbnail to the folder and return its URL relative to the page."""
    file = folder / f"{number // 1000:03}" / f"{number:06}.webp"
    refuse_links(file, folder.parent)
    content = base64.b64decode(thumb)
    if not (file.is_file() and file.read_bytes() == content):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return quote(str(file.relative_to(folder.parent).as_posix()))


def _url(image: str, home: Path) -> str:
    """Return the URL of a photo relative to the folder of the page."""
    photo = os.path.abspath(image)
    try:
        return quote(os.fsencode(os.path.relpath(photo, home.absolute()).replace(os.sep, "/")))
    except ValueError:  # another drive
        return Path(photo).as_uri()


def _script(held: object) -> str:
    """Return JSON that cannot close the surrounding script element."""
    text = json.dumps(held, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
