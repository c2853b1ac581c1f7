"""`mltta keywords undo`: take back what `mltta tag --keywords` has written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mltta.errors import MlttaError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def keywords() -> None:
    """Keywords that `mltta tag --keywords` has written into photos."""


@app.command("undo")
def undo_(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Photos, or folders of them.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be taken back.")] = False,
) -> None:
    """Take back the keywords that mltta has added, in photos and sidecars; those of others stay."""
    from mltta.images.find import find_images
    from mltta.output.formats import printable
    from mltta.output.keywords.write import undo

    photos: Sequence[Path] = find_images(paths)
    changed, failed = 0, []
    for photo in photos:
        try:
            found = undo(photo, dry_run)
        except MlttaError as error:
            failed.append(str(error))
            continue
        changed += bool(found)
        if found:
            typer.echo(printable(f"{photo}: {', '.join(found)}"))
    would = "would be taken back from" if dry_run else "taken back from"
    typer.echo(f"keywords {would} {changed:,} of {len(photos):,} photos", err=True)
    for reason in failed:
        typer.echo(printable(f"  {reason}"), err=True)
    raise typer.Exit(int(bool(failed)))
