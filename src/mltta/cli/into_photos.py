"""`--keywords`, `--copy-to` and `--link-to`: labels into the photos, photos into folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mltta.cli.tagging import Effect
from mltta.errors import MlttaError
from mltta.output.keywords.write import embed, is_jpeg, sidecar_of, write_sidecar
from mltta.output.records import Record, printable
from mltta.output.sorting import Sorting

if TYPE_CHECKING:
    from mltta.tagger import Tags


class Keywords(Effect):
    """Writes the labels present as keywords, beside the photo or into it."""

    def __init__(self, how: str, dry: bool, failed: list[str]):
        """Args:
        how: "sidecar" or "embed".
        dry: only say what would be written.
        failed: takes the reasons why some could not be.
        """
        self._how, self._dry, self._failed = how, dry, failed
        self._written = self._others = 0

    def tagged(self, photo: Path, tags: Tags, record: Record) -> None:
        self._write(photo, record)

    def known(self, photo: Path, record: Record) -> bool:
        return self._write(photo, record) and self._how == "embed" and not self._dry

    def notes(self) -> list[str]:
        if not self._written and not self._dry:
            return ["no keywords to write that were not there", *self._left()]
        would = "would be written" if self._dry else "written"
        place = "into" if self._how == "embed" else "beside"
        photos = "1 photo" if self._written == 1 else f"{self._written:,} photos"
        found = [
            f"keywords {would} {place} {photos}"
            + ("" if self._dry else "; `mltta keywords undo` takes them back")
        ]
        return found + self._left()

    def _left(self) -> list[str]:
        if not self._others:
            return []
        return [f"{self._others:,} are no JPEG, and got none: --keywords sidecar takes every kind"]

    def _write(self, photo: Path, record: Record) -> bool:
        if self._how == "embed" and not is_jpeg(photo):
            self._others += 1
            return False
        try:
            changed = (embed if self._how == "embed" else write_sidecar)(photo, record["present"], self._dry)
        except MlttaError as error:
            self._failed.append(str(error))
            return False
        self._written += changed
        if changed and self._dry:
            target = photo if self._how == "embed" else sidecar_of(photo)
            typer.echo(printable(f"{target}: {', '.join(record['present']) or 'no keywords'}"), err=True)
        return changed


class Sorted(Effect):
    """Copies or links photos into folders of their labels."""

    def __init__(self, sorting: Sorting, dry: bool):
        self._sorting, self._dry = sorting, dry
        self._made = 0

    def tagged(self, photo: Path, tags: Tags, record: Record) -> None:
        self.known(photo, record)

    def known(self, photo: Path, record: Record) -> bool:
        made = self._sorting.put(photo, record["present"], self._dry)
        self._made += len(made)
        if self._dry:
            for target in made:
                typer.echo(printable(f"{photo} -> {target}"), err=True)
        return False

    def notes(self) -> list[str]:
        kind = (
            ("link" if self._sorting.link else "copy")
            if self._made == 1
            else ("links" if self._sorting.link else "copies")
        )
        would = "would be made" if self._dry else "made"
        return [f"{self._made:,} {kind} {would} in {self._sorting.home}"]
