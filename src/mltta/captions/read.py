"""Reads captions from common files: text, JSON Lines, CSV, COCO captions, Hugging Face datasets."""

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

from mltta.captions.generate.answer_file import is_generated, kept_in
from mltta.errors import CaptionError
from mltta.storage.reading import UNREADABLE, explain, read_bytes, shorten, shown

log = logging.getLogger("mltta")
#: default fields of captions
FIELDS = ("caption", "text")
#: limits: captions per file, bytes per file, and decompressed size relative to the file and in bytes
MOST, BYTES, SWELLING, UNPACKED = 20_000_000, 4 << 30, 50, 16 << 20
_SURROGATES = re.compile("[\ud800-\udfff]")


def read_texts(source: str | os.PathLike[str], field: str | None = None) -> list[str]:
    """Read captions without blank and repeated ones, whose number is logged.

    Args:
        source: a file: .txt (one caption per line), .jsonl, .csv, .tsv or .json (COCO captions, or a list), optionally
            .gz; a folder written by `save_to_disk` of `datasets`; or "hf:ORG/NAME[:SPLIT][:COLUMN]".
        field: field or column with the captions (default: "caption" or "text").
    """
    name = os.fspath(source)
    kept: dict[str, None] = {}
    found = blank = 0
    for text in _texts(name, field):
        found += 1
        # unpaired surrogates are not valid text and cannot be written
        said = " ".join(_SURROGATES.sub("", text).split())
        blank += not said
        if said:
            kept[said] = None
        if len(kept) > MOST:
            raise CaptionError(f"{name} has more than {MOST:,} captions: use a part of them")
    if not kept:
        raise CaptionError(f"{name} contains no captions{': all are blank' if found else ''}")
    if len(kept) < found:
        repeated = found - blank - len(kept)
        log.info("%s: %d captions; skipped %d blank and %d repeated", name, len(kept), blank, repeated)
    return list(kept)


def _texts(name: str, field: str | None) -> Iterable[str]:
    """Choose the reader by file name, or by the content of a folder."""
    path = Path(name).expanduser()
    suffix = (Path(path.stem) if path.suffix.casefold() == ".gz" else path).suffix.casefold()
    if name.startswith("hf:"):
        root, _, rest = name.removeprefix("hf:").partition(":")
        split, _, column = rest.partition(":")
        return _dataset(root, split or None, column or field)
    if path.is_dir():
        from mltta.data.hf import is_saved

        if not is_saved(path):
            lacks = "neither a caption base nor a dataset written by `save_to_disk`"
            raise CaptionError(f"{path} is a folder, but {lacks}")
        return _dataset(str(path), None, field)
    content = _content(path)
    if suffix in (".jsonl", ".ndjson"):
        return kept_in(content.encode(), path) if is_generated(content) else _json_lines(content, path, field)
    if suffix in (".csv", ".tsv"):
        return _table(content, path, field, "\t" if suffix == ".tsv" else ",")
    return _json(content, path, field) if suffix == ".json" else _lines(content)


def _lines(content: str) -> Iterator[str]:
    """Yield one caption per line, with any line ending, without splitting all lines at once to limit memory."""
    start, length = 0, len(content)
    for end in re.finditer(r"\r\n|\r|\n", content):
        yield content[start : end.start()]
        start = end.end()
    if start < length or not length:
        yield content[start:]


def _content(path: Path) -> str:
    """Read a UTF-8 file, compressed or not, with or without a byte order mark, up to a size limit."""
    try:
        data = read_bytes(path, BYTES, CaptionError)
        if path.suffix.casefold() == ".gz":
            data = _unpacked(data, path)
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise CaptionError(f"no such caption file: {path}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        said = "not valid UTF-8. Save the file in this encoding."
        raise CaptionError(f"{path}, line {line}: {said}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CaptionError(f"{path} is not a complete .gz file: {error}") from None
    except OSError as error:
        raise CaptionError(f"{path}: cannot be read: {error.strerror}") from None


def _unpacked(data: bytes, path: Path) -> bytes:
    """Decompress a .gz file; text compresses about tenfold, so much higher ratios are refused."""
    most = min(BYTES, max(UNPACKED, SWELLING * len(data)))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise CaptionError(f"{path} decompresses to more than {most:,} bytes, so it is not a caption file")
    return content


def _json_lines(content: str, path: Path, field: str | None) -> Iterator[str]:
    for number, line in enumerate(_lines(content), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except UNREADABLE as error:
                raise CaptionError(f"{path}, line {number}: not valid JSON: {_said(error)}") from None
            yield _caption(row, field, f"{path}, line {number}")


def _json(content: str, path: Path, field: str | None) -> Iterator[str]:
    """Read COCO's {"annotations": [{"caption": …}]}, or a plain list."""
    try:
        whole = json.loads(content)
    except UNREADABLE as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise CaptionError(f"{path}{line}: not valid JSON: {_said(error)}") from None
    rows = whole.get("annotations") if isinstance(whole, dict) else whole
    if not isinstance(rows, list):
        raise CaptionError(f'{path} has neither a list nor COCO\'s {{"annotations": [{{"caption": …}}]}}')
    for number, row in enumerate(rows, start=1):
        yield _caption(row, field, f"{path}, entry {number}")


def _table(content: str, path: Path, field: str | None, delimiter: str) -> Iterator[str]:
    rows = csv.reader(io.StringIO(content, newline=""), delimiter=delimiter)
    try:
        header = [title.strip() for title in next(rows, [])]
        column = header.index(_field(header, field, f"{path}, line 1", "column"))
        for row in rows:
            if row and len(row) <= column:
                where = f"{path}, line {rows.line_num}"
                raise CaptionError(f"{where}: only {len(row)} cells, but captions are in column {column + 1}")
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


def _said(error: BaseException) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else explain(error)


def _caption(row: Any, field: str | None, where: str) -> str:
    value = row[_field(list(row), field, where, "field")] if isinstance(row, Mapping) else row
    if not isinstance(value, str):
        raise CaptionError(f"{where}: the caption is not a string: {shown(value)}")
    return value


def _field(there: list[str], wanted: str | None, where: str, kind: str) -> str:
    """Return the field with the captions, or raise an error that lists the available fields."""
    names = FIELDS if wanted is None else (wanted,)
    if (found := next((name for name in names if name in there), None)) is not None:
        return found
    missing = f"no {kind} {' or '.join(map(repr, names))}"
    if not any(there):
        raise CaptionError(f"{where}: {missing}; there are no fields at all")
    listed = ", ".join(map(shorten, there[:20]))
    raise CaptionError(f"{where}: {missing}; available: {listed}. Choose one with --field.")
