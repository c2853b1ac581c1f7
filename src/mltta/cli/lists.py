"""`mltta methods` and `mltta models`: what can be named."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

_REQUIRED = {
    "captions": "captions",
    "context": "one template whose words can be tuned",
    "words": "synonyms and everyday words",
    "teacher": "a second model (--teacher)",
    "pixels": "the pixels of views",
}


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show the settings of this method, or of a Python file.")
    ] = None,
    match: Annotated[str, typer.Option("--filter", help="Only names that contain or match this.")] = "",
) -> None:
    """List the methods, or the settings of one: defaults, ranges and what it requires."""
    from rich.console import Console
    from rich.table import Table

    from mltta.methods import list_methods, method_class
    from mltta.methods.config import range_of

    console = Console()
    if name is None:
        table = Table("method", "what it does", caption="mltta methods NAME: its settings", box=None)
        for one in list_methods(match):
            table.add_row(one, method_class(one).summary)
        console.print(table)
        return
    cls = method_class(name)
    needs = [text for requirement, text in _REQUIRED.items() if requirement in cls.requires]
    console.print(f"[bold]{cls.name}[/bold]: {cls.summary}")
    console.print(f"requires: {', '.join(needs) or 'nothing but views and labels'}", highlight=False)
    if cls.online or cls.transductive:
        console.print(
            "online: learns from earlier images" if cls.online else "transductive: answers at the end"
        )
    table = Table("setting", "default", "meaning", box=None)
    for field in dataclasses.fields(cls.Config):
        more = f" ({range_of(field)})" if range_of(field) else ""
        table.add_row(field.name, str(field.default), field.metadata.get("help", "") + more)
    console.print(table if table.row_count else "no settings")
    for preset, values in cls.Config.PRESETS.items():
        console.print(
            f"--preset {preset}: {', '.join(f'{k}={v}' for k, v in values.items())}", highlight=False
        )


def models(
    all: Annotated[bool, typer.Option("--all", help="Every model and tag that open_clip knows.")] = False,
    match: Annotated[str, typer.Option("--filter", help="Only names that contain or match this.")] = "",
) -> None:
    """List models that can be named with --model."""
    from mltta.model.names import list_models

    for name in list_models(match, all=all):
        typer.echo(name)
