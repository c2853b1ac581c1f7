"""Captions out of the files people have them in: text, JSON Lines, CSV, COCO captions, Hugging Face datasets."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mltta.captions.generate.answers import is_generated, kept_in
from mltta.errors import CaptionError

log = logging.getLogger("mltta")
#: where a caption is looked for unless a field is named
FIELDS = ("caption", "text")
_SURROGATES = re.compile("[\ud800-\udfff]")


def read_texts(source: str | os.PathLike[str], field: str | None = None) -> list[str]:
    """Read captions; blank and repeated ones are left out, and how many is logged.

    Args:
        source: a file: .txt (one caption a line), .jsonl, .csv, .tsv or .json (COCO captions, or a list), each also
            as .gz; a folder that `save_to_disk` of `datasets` wrote; or "hf:ORG/NAME[:SPLIT][:COLUMN]".
        field: the field or column that holds the captions; otherwise "caption" or "text".
    """
    name = os.fspath(source)
    # half a surrogate pair is no text, and could not be written
    found = [" ".join(_SURROGATES.sub("", text).split()) for text in _texts(name, field)]
    said = [text for text in found if text]
    kept = list(dict.fromkeys(said))
    if not kept:
        raise CaptionError(
            f"{name} holds no captions: every one is blank" if found else f"{name} holds no captions"
        )
    if len(kept) < len(found):
        blank, repeated = len(found) - len(said), len(said) - len(kept)
        log.info("%s: %d captions; %d blank and %d repeated left out", name, len(kept), blank, repeated)
    return kept


def _texts(name: str, field: str | None) -> Iterable[str]:
    """Choose the reader by what the source is called or, for a folder, holds."""
    path = Path(name).expanduser()
    if name.startswith("hf:"):
        root, _, rest = name.removeprefix("hf:").partition(":")
        split, _, column = rest.partition(":")
        return _dataset(root, split or None, column or field)
    if path.is_dir():
        from mltta.data.hf import is_saved

        if not is_saved(path):
            raise CaptionError(
                f"{path} is a folder, but neither a caption base nor a dataset that `save_to_disk` wrote"
            )
        return _dataset(str(path), None, field)
    content = _content(path)
    kind = path.with_suffix("").suffix if path.suffix.casefold() == ".gz" else path.suffix
    if kind.casefold() in (".jsonl", ".ndjson"):
        if is_generated(content):
            return kept_in(content.encode(), path)
        return _json_lines(content, path, field)
    if kind.casefold() == ".json":
        return _json(content, path, field)
    if kind.casefold() in (".csv", ".tsv"):
        return _table(content, path, field, "\t" if kind.casefold() == ".tsv" else ",")
    return content.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _content(path: Path) -> str:
    """Read a UTF-8 file, compressed or not, with or without a byte order mark."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix.casefold() == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise CaptionError(f"there is no caption file at {path}: check the spelling of the path") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise CaptionError(
            f"{path}, line {line}: not UTF-8, so no captions can be read. If it is text, save it in that encoding."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CaptionError(f"{path} is no whole .gz file: {error}") from None
    except OSError as error:
        raise CaptionError(f"{path} cannot be read: {error.strerror}") from None


def _json_lines(content: str, path: Path, field: str | None) -> Iterator[str]:
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise CaptionError(f"{path}, line {number}: not valid JSON: {error.msg}") from None
            yield _caption(row, field, f"{path}, line {number}")


def _json(content: str, path: Path, field: str | None) -> Iterator[str]:
    """COCO's {"annotations": [{"caption": …}]}, or a plain list."""
    try:
        whole = json.loads(content)
    except json.JSONDecodeError as error:
        raise CaptionError(f"{path}, line {error.lineno}: not valid JSON: {error.msg}") from None
    rows = whole.get("annotations") if isinstance(whole, dict) else whole
    if not isinstance(rows, list):
        raise CaptionError(f'{path} holds neither a list nor COCO\'s {{"annotations": [{{"caption": …}}]}}')
    for number, row in enumerate(rows, start=1):
        yield _caption(row, field, f"{path}, entry {number}")


def _table(content: str, path: Path, field: str | None, delimiter: str) -> Iterator[str]:
    rows = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    header = [title.strip() for title in next(rows, [])]
    column = header.index(_field(header, field, f"{path}, line 1", "column"))
    try:
        for row in rows:
            if row and len(row) <= column:
                raise CaptionError(
                    f"{path}, line {rows.line_num}: {len(row)} cells, but captions are in {column + 1}"
                )
            yield row[column] if row else ""
    except csv.Error as error:
        raise CaptionError(f"{path}, line {rows.line_num}: {error}") from None


def _dataset(root: str, split: str | None, field: str | None) -> Iterator[str]:
    from mltta.data.hf import open_split

    rows, split = open_split(root, split)
    column = _field(list(rows.features), field, f"{root}, split {split}", "column")
    for number, row in enumerate(rows.select_columns([column])):
        values = row[column] if isinstance(row[column], (list, tuple)) else [row[column]]
        for value in values:
            yield "" if value is None else _caption(value, None, f"{root}, row {number}")


def _caption(row: Any, field: str | None, where: str) -> str:
    """Return the caption of a row, which is the caption or an object with a field that holds it."""
    value = row[_field(list(row), field, where, "field")] if isinstance(row, Mapping) else row
    if not isinstance(value, str):
        raise CaptionError(f"{where}: the caption is not text: {value!r}")
    return value


def _field(there: list[str], wanted: str | None, where: str, kind: str) -> str:
    """Return the field that holds captions, or say which there are."""
    for name in FIELDS if wanted is None else (wanted,):
        if name in there:
            return name
    missing = f"no {kind} {wanted!r}" if wanted else f"no {kind} {' or '.join(map(repr, FIELDS))}"
    if not any(there):
        raise CaptionError(f"{where}: {missing}; there are none at all")
    raise CaptionError(
        f"{where}: {missing}; there {'is' if len(there) == 1 else 'are'} {', '.join(there)}. Name one with --field."
    )
