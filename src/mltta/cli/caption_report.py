"""What `mltta captions` prints: what a base is, and how well it covers a label set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from mltta.captions.nouns import Quality
    from mltta.captions.store import CaptionBase
    from mltta.labels import LabelSet


def about(base: CaptionBase, folder: Path) -> dict[str, Any]:
    """What a base is, in plain data."""
    return {
        "folder": str(folder),
        "model": base.model,
        "weights": base.fingerprint,
        "captions": len(base),
        "dim": base.embeddings.shape[1],
    }


def show(
    bases: list[dict[str, Any]], as_json: bool, texts: Sequence[str] = (), labels: LabelSet | None = None
) -> None:
    """Print what bases are, and how well their texts cover labels, if any are given."""
    from mltta.captions.nouns import quality

    cover = None if labels is None else quality(texts, labels)
    if as_json:
        said = {"bases": bases} | ({} if cover is None else {"quality": cover.to_dict()})
        typer.echo(json.dumps(said, ensure_ascii=False, indent=1))
        return
    for base in bases:
        more = f", {base['dropped']:,} repeated left out" if "dropped" in base else ""
        typer.echo(
            f"{base['folder']}: {base['captions']:,} captions{more}, {base['dim']} numbers each, "
            f"by {base['model'] or 'a model without a name'} (weights {base['weights'][:8]})"
        )
    if cover is not None:
        show_quality(cover)


def show_quality(cover: Quality) -> None:
    """Print a quality report as tables and a sentence."""
    said = cover.to_dict()
    spread = said["captions_per_label"]
    print_table(("label", "captions"), [(name, f"{count:,}") for name, count in said["by_label"].items()])
    shares = [
        (str(size), f"{count:,}", f"{count / cover.captions:.1%}") for size, count in enumerate(cover.sizes)
    ]
    print_table(("labels per caption", "captions", "share"), shares)
    least, median, most = spread["min"], spread["median"], spread["max"]
    typer.echo(f"captions per label: minimum {least:,}, median {median:,g}, maximum {most:,}")
    never = ", ".join(cover.never)
    typer.echo(f"labels never mentioned: {len(cover.never)} of {len(cover.labels)}{never and f': {never}'}")


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*titles)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)
