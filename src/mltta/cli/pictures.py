"""`--annotate` and `--where`: each photo once more as a picture, in folders like the photos' own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mltta.cli.tagging import Effect
from mltta.errors import MlttaError
from mltta.output.places import Places
from mltta.output.records import Record

if TYPE_CHECKING:
    from mltta.tagger import Tags


class Pictures(Effect):
    """Draws photos with their labels' bars, or with where the labels were found."""

    def __init__(self, folder: Path, heat: bool):
        make_folder(folder)
        self._places, self._heat = Places(folder, ".png"), heat
        self._missing = 0

    def prepare(self, photo: Path, root: Path | None) -> None:
        self._places(photo, root)

    def tagged(self, photo: Path, tags: Tags, record: Record) -> None:
        from mltta.images.decode import load_image
        from mltta.output.picture import annotate, where_sheet

        target = self._places(photo, None)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            (where_sheet if self._heat else annotate)(load_image(photo), tags).save(target)
        except OSError as error:
            raise MlttaError(f"{target} cannot be written: {error.strerror or error}") from error

    def known(self, photo: Path, record: Record) -> bool:
        self._missing += not self._places(photo, None).exists()
        return False

    def notes(self) -> list[str]:
        if not self._missing:
            return []
        return [
            f"{self._missing:,} that were done before have no picture in {self._places.folder}: --overwrite makes all"
        ]


class Thumbnails(Effect):
    """Keeps what a gallery shows with each record."""

    def tagged(self, photo: Path, tags: Tags, record: Record) -> None:
        from mltta.output.gallery import for_gallery

        record.update(for_gallery(photo, tags.where))


def make_folder(folder: Path) -> None:
    """Make a folder for pictures before any work is done, or say why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MlttaError(f"{folder} cannot be used for pictures: {error.strerror}") from error
