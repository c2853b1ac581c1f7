"""`mltta prompts`: look at a file of learned prompts, or share it."""

from __future__ import annotations

import typer

from mltta.cli.groups import HubOptions
from mltta.cli.options import Options, argument


class InfoOptions(Options):
    """Say what a file of prompts holds and what it was trained on: `mltta prompts info voc.safetensors`."""

    file: str = argument("FILE", "Ours, CoOp's, MaPLe's, or hf-hub:ORG/NAME.")


class PushOptions(HubOptions):
    """Share prompts on the Hugging Face hub; log in with `hf auth login` first.

    Everyone can then use them as `--prompts hf-hub:ORG/NAME`. Only the tensors and their description are sent.
    """

    file: str = argument("FILE", "Ours, CoOp's or MaPLe's.")


def push(options: PushOptions) -> None:
    from mltta.model.learned_prompts import load_prompts, push_prompts
    from mltta.storage import hub

    url = push_prompts(load_prompts(options.file), options.name, options.private)
    typer.echo(f"sent to {url}: --prompts {hub.PREFIX}{options.name}")


def info(options: InfoOptions) -> None:
    from mltta.model.learned_prompts import MaPLe, load_prompts

    prompts = load_prompts(options.file)
    *labels, tokens, width = prompts.context.shape
    each = f", one for each of {labels[0]} labels" if labels else ""
    typer.echo(f"{prompts.title} prompts {prompts.digest}")
    typer.echo(f"context: {tokens} tokens, {width} wide{each}")
    if isinstance(prompts, MaPLe):
        wide = prompts.tensors["proj.weight"].shape[0]
        typer.echo(f"image tower: {wide} wide; blocks with prompts: {1 + prompts.deeper}")
    for name, value in prompts.about.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {inner}" for key, inner in value.items())
        typer.echo(f"{name}: {', '.join(value) if isinstance(value, list) else value}")
