"""`mltta captions`: the sentences that labels are read from."""

from __future__ import annotations

import typer

from mltta.cli import generate

app = typer.Typer(no_args_is_help=True, help="Caption bases: the sentences that labels are read from.")
app.command("generate", help=generate.HELP)(generate.generate)


@app.callback()
def captions() -> None:
    """Keep the commands below their group while there is but one."""
