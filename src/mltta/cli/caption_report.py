"""Reports of `mltta captions`: properties of a caption base and its coverage of a label set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mltta.storage.reading import escaped

if TYPE_CHECKING:
    from mltta.captions.store import CaptionBase
    from mltta.labels import LabelSet


def about(base: CaptionBase, folder: Path) -> dict[str, Any]:
    """Return the properties of a base as plain data."""
    said = {"folder": str(folder), "model": base.model, "weights": base.fingerprint}
    return said | {"captions": len(base), "dim": base.embeddings.shape[1]}


def show(
    bases: list[dict[str, Any]], as_json: bool, texts: Sequence[str] = (), labels: LabelSet | None = None
) -> None:
    """Print the properties of bases and, if labels are given, how well their texts cover them."""
    from mltta.captions.nouns import quality

    cover = None if labels is None else quality(texts, labels)
    if as_json:
        print_json({"bases": bases} | ({} if cover is None else {"quality": cover.to_dict()}))
        return
    for base in bases:
        more = f", {base['dropped']:,} duplicates removed" if "dropped" in base else ""
        typer.echo(
            f"{base['folder']}: {base['captions']:,} captions{more}, {base['dim']} dimensions, "
            f"embedded by {base['model'] or 'an unnamed model'} (weights {base['weights'][:8]})"
        )
    if cover is None:
        return
    said = cover.to_dict()
    print_table("label", "captions", rows=[(name, f"{count:,}") for name, count in said["by_label"].items()])
    sizes = enumerate(cover.sizes)
    shares = [(str(size), f"{count:,}", f"{count / cover.captions:.1%}") for size, count in sizes]
    print_table("labels per caption", "captions", "share", rows=shares)
    spread = "captions per label: minimum {min:,}, median {median:,g}, maximum {max:,}"
    typer.echo(spread.format(**said["captions_per_label"]))
    never = ": ".join(filter(None, [f"{len(cover.never)} of {len(cover.labels)}", ", ".join(cover.never)]))
    typer.echo(f"labels never mentioned: {never}")


def print_json(said: Any) -> None:
    typer.echo(json.dumps(said, ensure_ascii=False, indent=1))


def print_table(*titles: str, rows: Iterable[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*titles)
    for row in rows:
        table.add_row(*(escape(escaped(cell)) for cell in row))
    Console(file=getattr(sys.stdout, "styled", sys.stdout)).print(table)
