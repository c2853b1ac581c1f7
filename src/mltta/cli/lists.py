"""`mltta methods` and `mltta models`: list methods and models."""

from __future__ import annotations

import dataclasses

import typer

from mltta.cli.options import Options, argument, option

_REQUIRED = {
    "captions": "captions",
    "context": "a single template, whose tokens are tuned",
    "words": "synonyms and everyday words",
    "teacher": "a second model (--teacher)",
    "pixels": "pixels of the views",
}


class MethodsOptions(Options):
    """List methods, or show the settings of one method.

    `mltta methods` lists all methods; `mltta methods ml-tta` describes the settings of one, with defaults and ranges.
    """

    name: str | None = argument("[NAME]", "Method name or Python file whose settings to show.", None)
    filter: str = option("", "Only show names that contain or match this pattern.")


class ModelsOptions(Options):
    """List models for --model."""

    all: bool = option(False, "List every model and tag of open_clip.")
    filter: str = option("", "Only show names that contain or match this pattern.")


def methods(options: MethodsOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    from mltta.methods import list_methods, method_class
    from mltta.methods.config import range_of

    console = Console(highlight=False)
    if options.name is None:
        table = Table("method", "what it does", caption="mltta methods NAME shows the settings", box=None)
        for name in list_methods(options.filter):
            table.add_row(name, method_class(name).summary)
        console.print(table)
        return
    cls = method_class(options.name)
    needs = [text for requirement, text in _REQUIRED.items() if requirement in cls.requires]
    console.print(f"{cls.name}: {cls.summary}\nrequires: {', '.join(needs) or 'only views and labels'}")
    if cls.online or cls.transductive:
        console.print(
            "online: learns from earlier images" if cls.online else "transductive: scores all images at once"
        )
    table = Table("setting", "default", "meaning", box=None)
    for field in dataclasses.fields(cls.Config):
        more = f" ({range_of(field)})" if range_of(field) else ""
        table.add_row(field.name, str(field.default), field.metadata.get("help", "") + more)
    console.print(table if table.row_count else "no settings")
    for preset, values in cls.Config.PRESETS.items():
        console.print(f"--preset {preset}: {', '.join(f'{k}={v}' for k, v in values.items())}")


def models(options: ModelsOptions) -> None:
    from mltta.model.names import list_models

    for name in list_models(options.filter, all=options.all):
        typer.echo(name)
