"""What `mltta tag` creates besides tags: keywords, copies and links, annotated pictures, thumbnails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mltta.cli.progress import say
from mltta.errors import ConfigError, MlttaError
from mltta.output.formats import Record
from mltta.output.gallery import for_gallery, thumbnail_folder
from mltta.output.keywords.lists import LEVEL
from mltta.output.keywords.write import embed, is_jpeg, sidecar_of, write_sidecar
from mltta.output.sorting import PicturePaths, Sorting
from mltta.storage.atomic import refuse_links, writing

if TYPE_CHECKING:
    from mltta.cli.tag import TagOptions
    from mltta.tagger import Tags


class Effect:
    """An action applied to every photo of a run."""

    #: output folder, which is not searched for photos
    folder: Path | None = None

    def prepare(self, roots: Mapping[Any, Path | None]) -> None:
        """Receive all photos of the run, in order, before any is tagged."""

    def __call__(self, photo: Path, record: Record, tags: Tags | None) -> bool | None:
        """Process a photo; return whether its file changed. ``tags`` is None if an earlier run tagged it."""

    def notes(self) -> list[str]:
        """Return lines for the summary."""
        return []


class Keywords(Effect):
    """Write keywords to sidecar files or into JPEGs; ``failed`` collects errors."""

    def __init__(
        self, how: Literal["sidecar", "adobe", "embed"], root: str | None, dry: bool, failed: list[str]
    ):
        self._how, self._dry, self._failed, self._embed = how, dry, failed, how == "embed"
        self._root = f"{root}{LEVEL}" if root else ""
        self._written = self._others = 0

    def __call__(self, photo: Path, record: Record, tags: Tags | None) -> bool:
        if self._embed and not is_jpeg(photo):
            self._others += 1
            return False
        try:
            keywords = [f"{self._root}{keyword}" for keyword in record["keywords"]]
            if self._how == "embed":
                target, changed = photo, embed(photo, keywords, self._dry)
            else:
                target = sidecar_of(photo, self._how)
                changed = write_sidecar(photo, keywords, self._dry, self._how)
        except MlttaError as error:
            self._failed.append(str(error))
            return False
        self._written += changed
        if changed and self._dry:
            say(f"{target}: {', '.join(keywords) or 'no keywords'}")
        return changed and self._embed and not self._dry

    def notes(self) -> list[str]:
        photos = "1 photo" if self._written == 1 else f"{self._written:,} photos"
        place = f"{'into' if self._embed else 'to sidecar files of'} {photos}"
        said = f"keywords written {place}; `mltta keywords undo` removes them"
        if self._dry:
            said = f"keywords would be written {place}"
        elif not self._written:
            said = "no new keywords to write"
        others = f"{self._others:,} are not JPEGs and were skipped; --keywords sidecar supports all formats"
        return [said, others] if self._others else [said]


class Sorted(Effect):
    """Copy or link photos into folders by label."""

    def __init__(self, sorting: Sorting, dry: bool):
        self._sorting, self._dry, self._made, self.folder = sorting, dry, 0, sorting.home

    def __call__(self, photo: Path, record: Record, tags: Tags | None) -> None:
        for target in self._sorting.put(photo, record["present"], self._dry):
            self._made += 1
            if self._dry:
                say(f"{photo} -> {target}")

    def notes(self) -> list[str]:
        one, several = ("link", "links") if self._sorting.link else ("copy", "copies")
        would = "would be made" if self._dry else "made"
        return [f"{self._made:,} {one if self._made == 1 else several} {would} in {self.folder}"]


class Pictures(Effect):
    """Save each photo with label bars or heat maps, in the same folder structure as the photos."""

    def __init__(self, folder: Path, heat: bool):
        self.folder, self._heat, self._missing = folder, heat, 0
        self._paths = PicturePaths(folder)
        with writing(folder):  # fail before tagging
            folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, roots: Mapping[Any, Path | None]) -> None:
        for photo, root in roots.items():
            self._paths(photo, root)

    def __call__(self, photo: Path, record: Record, tags: Tags | None) -> None:
        target = self._paths(photo, None)
        if tags is None:
            self._missing += not target.exists()
            return
        from mltta.images.decode import load_image
        from mltta.output.picture import annotate, where_sheet

        with writing(target):
            refuse_links(target, self._paths.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            (where_sheet if self._heat else annotate)(load_image(photo), tags).save(target)

    def notes(self) -> list[str]:
        missing = f"{self._missing:,} photos tagged by earlier runs have no picture in {self.folder}"
        return [f"{missing}; use --overwrite to create them"] if self._missing else []


class Thumbnails(Effect):
    """Add the thumbnail and heat maps of the gallery to each record."""

    def __init__(self, gallery: Path):
        self.folder = thumbnail_folder(gallery)

    def __call__(self, photo: Path, record: Record, tags: Tags | None) -> None:
        if tags is not None:
            record.update(for_gallery(photo, tags.where))


def effects_of(
    options: TagOptions, outputs: Mapping[Path | None, str], paths: list[Path], unwritten: list[str]
) -> list[Effect]:
    """Return the effects in order: copies come after keywords, so that they include them.

    Copies must not go to one of the ``paths`` tagged. ``unwritten`` collects why photos got no keywords.
    """
    if options.dry_run and not (options.keywords or options.copy_to or options.link_to):
        raise ConfigError("--dry-run needs --keywords, --copy-to or --link-to")
    found: list[Effect] = []
    if options.keywords is not None:
        found.append(Keywords(options.keywords, options.keyword_root, options.dry_run, unwritten))
    for pattern, link in ((options.copy_to, False), (options.link_to, True)):
        if pattern is not None:
            sorting = Sorting(pattern, link)
            if sorting.home.resolve() in {path.resolve() for path in paths}:
                raise ConfigError("--copy-to and --link-to need a folder other than the one being tagged")
            found.append(Sorted(sorting, options.dry_run))
    pictures = ((options.annotate, False), (options.where, True))
    found += [Pictures(own, heat) for own, heat in pictures if own is not None]
    return found + [Thumbnails(path) for path, format in outputs.items() if path and format == "html"]
