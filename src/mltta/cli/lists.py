"""`mltta methods` and `mltta models`: what can be named."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import typer

from mltta.cli.options import argument, option


@dataclass(frozen=True, kw_only=True)
class MethodsOptions:
    """List the methods and their settings, with the paper's defaults.

    `mltta methods` lists all of them, `mltta methods ml-tta` explains the settings of one.
    """

    name: str | None = argument("[NAME]", "Method whose settings are explained.", None)


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """List models that can be named with --model."""

    all: bool = option(False, "Every model and tag that open_clip knows.")
    filter: str = option("", "Only names that contain this.")


def methods(options: MethodsOptions) -> None:
    """Print the methods, or the settings of one."""
    from rich.console import Console
    from rich.table import Table

    from mltta.methods import list_methods, method_class

    if options.name is not None:
        cls = method_class(options.name)
        typer.echo(f"{cls.name}: {cls.summary}")
        table = Table("setting", "default", "meaning")
        for field in dataclasses.fields(cls.Config):
            table.add_row(field.name, str(field.default), field.metadata.get("help", ""))
        if table.rows:
            Console().print(table)
        return
    table = Table("method", "what it does", "settings (--set NAME=VALUE)")
    for name in list_methods():
        cls = method_class(name)
        fields = dataclasses.fields(cls.Config)
        table.add_row(name, cls.summary, "\n".join(f"{f.name}={f.default}" for f in fields) or "none")
    Console().print(table)


def models(options: ModelsOptions) -> None:
    """Print the names of models."""
    from mltta.model.weights import PAPER_MODELS

    names = ["mini", *(f"{name}:openai" for name in PAPER_MODELS)]
    if options.all:
        import open_clip

        names = [f"{name}:{tag}" for name, tag in open_clip.list_pretrained()]
    for name in names:
        if options.filter.lower() in name.lower():
            typer.echo(name)
