"""Tags as Parquet: one row per label, or one row per image."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import IO, Any

from mltta.errors import ConfigError
from mltta.output.formats import COLUMNS, Page, Record, table_rows

#: images per row group, which are in memory at once
_AT_ONCE = 10_000


def write_parquet(part: Path | IO[bytes], records: Iterable[Record], page: Page) -> None:
    """Write row group by row group; equal records give equal bytes."""
    pa, parquet = open_pyarrow()
    text, score, wide = pa.string(), pa.float32(), page.wide
    kinds = [pa.list_(text), pa.list_(text), pa.list_(score)] if wide else [text, score, pa.bool_()]
    schema = pa.schema(list(zip(COLUMNS[wide], (text, *kinds, text), strict=True)))
    left = iter(records)
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        while some := list(islice(left, _AT_ONCE)):
            rows = (row for one in some for row in table_rows(one, wide))
            held = [dict(zip(COLUMNS[wide], row, strict=True)) for row in rows]
            writer.write_table(pa.Table.from_pylist(held, schema=schema))


def open_pyarrow() -> tuple[Any, Any]:
    """Import pyarrow and pyarrow.parquet, or say what to install."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        said = "parquet needs pyarrow: pip install 'mltta[parquet]', or write .csv instead"
        raise ConfigError(said) from None
    return pyarrow, parquet
