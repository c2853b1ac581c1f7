"""`mltta methods` and `mltta models`: what can be named."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer


def methods() -> None:
    """List the methods and their settings, with the paper's defaults."""
    from rich.console import Console
    from rich.table import Table

    from mltta.methods import list_methods, method_class

    table = Table("method", "what it does", "settings (--set NAME=VALUE)")
    for name in list_methods():
        cls = method_class(name)
        fields = dataclasses.fields(cls.Config)
        table.add_row(name, cls.summary, "\n".join(f"{f.name}={f.default}" for f in fields) or "none")
    Console().print(table)


def models(
    all: Annotated[bool, typer.Option("--all", help="Every model and tag that open_clip knows.")] = False,
    match: Annotated[str, typer.Option("--filter", help="Only names that contain this.")] = "",
) -> None:
    """List models that can be named with --model."""
    from mltta.model.weights import PAPER_MODELS

    names = ["mini", *(f"{name}:openai" for name in PAPER_MODELS)]
    if all:
        import open_clip

        names = [f"{name}:{tag}" for name, tag in open_clip.list_pretrained()]
    for name in names:
        if match.lower() in name.lower():
            typer.echo(name)
