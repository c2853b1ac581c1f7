"""`mltta prompts`: show what a file of learned prompts holds, share it."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Show or share a file of learned prompts (CoOp, MaPLe).")


@app.command("push")
def push(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ours, CoOp's or MaPLe's.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="Where to on the Hugging Face hub.")],
    private: Annotated[
        bool, typer.Option("--private", help="Only you and your organisation see it.")
    ] = False,
) -> None:
    """Share prompts on the Hugging Face hub; log in with `hf auth login` first.

    Everyone then uses them as `--prompts hf-hub:ORG/NAME`. Sent are the tensors and what is known about them.
    """
    from mltta.model.learned_prompts import load_prompts, push_prompts
    from mltta.storage import hub

    url = push_prompts(load_prompts(file), name, private)
    typer.echo(f"sent to {url}: --prompts {hub.PREFIX}{name}")


@app.command("info")
def info(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Ours, CoOp's, MaPLe's, or hf-hub:ORG/NAME.")],
) -> None:
    """Say what a file of prompts holds and what it was trained on: `mltta prompts info voc.safetensors`."""
    from mltta.model.learned_prompts import MaPLe, load_prompts

    prompts = load_prompts(file)
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
