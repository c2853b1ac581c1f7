"""The command line: one file a command, or a few that belong together."""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated, TextIO

import typer

from mltta.cli import cache, captions, evaluate, lists, prompts, reproduce, tag
from mltta.errors import MlttaError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("tag", help=tag.HELP)(tag.tag)
app.command("eval", help=evaluate.EVAL_HELP)(evaluate.eval_)
app.command("compare", help=evaluate.COMPARE_HELP)(evaluate.compare)
app.command("reproduce", help=reproduce.HELP)(reproduce.reproduce)
app.add_typer(captions.app, name="captions")
app.add_typer(prompts.app, name="prompts")
app.add_typer(cache.app, name="cache")
app.command("methods")(lists.methods)
app.command("models")(lists.models)


def show_version(asked: bool) -> None:
    if asked:
        from mltta import __version__

        typer.echo(f"mltta {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Tag images with many labels at once, adapting a frozen CLIP-style model to every single image."""


def main() -> None:
    """Run the command line; our own errors become one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        _print_anything(stream)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("mltta").setLevel(logging.INFO)
    try:
        app()
    except MlttaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _print_anything(stream: TextIO) -> None:
    """Let a stream of another encoding than UTF-8, as on Windows, take bars and the labels of any language."""
    if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
        if stream.isatty():
            stream.reconfigure(errors="replace")
        else:
            stream.reconfigure(encoding="utf-8")
