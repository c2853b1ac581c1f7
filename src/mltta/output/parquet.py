"""Tags as Parquet, which data frames read: one row a label, or one row an image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from mltta.errors import ConfigError
from mltta.output.records import Page, Record, printable

#: images of a row group: what is in memory at once
_AT_ONCE = 10_000


def write_parquet(part: Path | IO[bytes], records: Iterable[Record], page: Page) -> None:
    """Write row group by row group; the same records give the same bytes."""
    pa, parquet = open_pyarrow()
    text, score = pa.string(), pa.float32()
    fields = (
        [
            ("image", text),
            ("present", pa.list_(text)),
            ("labels", pa.list_(text)),
            ("scores", pa.list_(score)),
        ]
        if page.wide
        else [("image", text), ("label", text), ("score", score), ("present", pa.bool_())]
    )
    schema = pa.schema([*fields, ("error", text)])
    rows = _wide if page.wide else _long
    left = iter(records)
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        while some := list(islice(left, _AT_ONCE)):
            table = pa.Table.from_pylist([row for record in some for row in rows(record)], schema=schema)
            writer.write_table(table)


def open_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its parquet part, or what to install."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(
            "parquet needs pyarrow: pip install 'mltta[parquet]', or write .csv instead"
        ) from None
    return pyarrow, parquet


def _long(record: Record) -> Iterator[dict[str, object]]:
    image = printable(record["image"])
    if "error" in record or not record["labels"]:
        error = printable(record["error"]) if "error" in record else None
        yield {"image": image, "label": None, "score": None, "present": None, "error": error}
        return
    for item in record["labels"]:
        here = item["label"] in record["present"]
        yield {"image": image, "label": item["label"], "score": item["score"], "present": here, "error": None}


def _wide(record: Record) -> Iterator[dict[str, object]]:
    failed = "error" in record
    yield {
        "image": printable(record["image"]),
        "present": None if failed else record["present"],
        "labels": None if failed else [item["label"] for item in record["labels"]],
        "scores": None if failed else [item["score"] for item in record["labels"]],
        "error": printable(record["error"]) if failed else None,
    }
