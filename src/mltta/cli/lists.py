"""`mltta methods` and `mltta models`: list methods and models."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import MISSING
from pathlib import Path

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
    """List models for --model, or export one."""

    all: bool = option(False, "List every model and tag of open_clip.")
    filter: str = option("", "Only show names that contain or match this pattern.")


class ExportOptions(Options):
    """Write a model folder that runs on ONNX Runtime, without PyTorch, and on PyTorch.

    `mltta models export my-model --model ViT-B/16`, then `mltta tag photo.jpg --model my-model`

    The folder has the towers as ONNX graphs and their weights once, in safetensors. The image tower takes inputs of any
    size if it is a convolutional network, and of its own size otherwise.
    """

    folder: Path = argument("DIR", "Folder to write.")
    model: str = option(MISSING, "Model name or model folder, as in `mltta tag`.", "-m")


def methods(options: MethodsOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    from mltta.methods import list_methods, method_class
    from mltta.methods.config import range_of
    from mltta.methods.registry import summary

    console = Console(file=getattr(sys.stdout, "styled", sys.stdout), highlight=False)
    if options.name is None:
        table = Table("method", "what it does", caption="mltta methods NAME shows the settings", box=None)
        for name in list_methods(options.filter):
            table.add_row(name, summary(name))
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


def export(options: ExportOptions) -> None:
    from mltta.model.load import load_backbone
    from mltta.storage.folders import MINI

    backbone = load_backbone(options.model, device="cpu", accelerate=False, engine="torch")
    from mltta.model.onnx_export import export_model  # imports PyTorch, whose absence is reported above

    source = MINI if options.model == "mini" else Path(options.model)
    export_model(backbone, options.folder, source if source.is_dir() else None)
    typer.echo(f"wrote {options.folder}: --model {options.folder}", err=True)
