"""`mltta keywords undo`: take back what `mltta tag --keywords` has written."""

from __future__ import annotations

from pathlib import Path

import typer

from mltta.cli.options import Options, argument, option
from mltta.cli.progress import say
from mltta.errors import MlttaError


class UndoOptions(Options):
    """Take back the keywords that mltta has added, in photos and sidecars; those of others stay."""

    paths: tuple[Path, ...] = argument("PATH…", "Photos, or folders of them.")
    dry_run: bool = option(False, "Only print what would be taken back.")


def undo(options: UndoOptions) -> None:
    from mltta.images.find import find_images
    from mltta.output.formats import printable
    from mltta.output.keywords import write

    photos, changed, failed = find_images(options.paths), 0, []
    for photo in photos:
        try:
            found = write.undo(photo, options.dry_run)
        except MlttaError as error:
            failed.append(f"  {error}")
            continue
        changed += bool(found)
        if found:
            typer.echo(printable(f"{photo}: {', '.join(found)}"))
    would = "would be taken back from" if options.dry_run else "taken back from"
    for line in [f"keywords {would} {changed:,} of {len(photos):,} photos", *failed]:
        say(line)
    raise typer.Exit(int(bool(failed)))
