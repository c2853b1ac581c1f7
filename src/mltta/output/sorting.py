"""Photos sorted into folders by their labels: copied or linked, never over a file that is there."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from mltta.errors import ConfigError, MlttaError
from mltta.output.keywords.jpeg import Jpeg
from mltta.storage import atomic

LABEL = "{label}"
#: names that Windows keeps for devices
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?$", re.IGNORECASE)


def safe_name(label: str) -> str:
    """A label as a folder that every system takes.

    >>> [safe_name(label) for label in ("traffic light", "salt/pepper", "..", "Aux", "what?")]
    ['traffic light', 'salt_pepper', '_', '_Aux', 'what_']
    """
    name = re.sub(r'[<>:"/\\|?*\x00-\x1f]', "_", label).strip().rstrip(". ")
    name = name.encode("utf-8", "replace")[:120].decode("utf-8", "ignore")
    return f"_{name}" if not name or _DEVICES.match(name) else name


class Sorting:
    """Puts photos into a folder for each label that they show.

    Args:
        pattern: where to, with {label} in it.
        link: make links instead of copies.
    """

    def __init__(self, pattern: Path, link: bool = False):
        if LABEL not in str(pattern):
            option = "--link-to" if link else "--copy-to"
            raise ConfigError(f'{option} {pattern}: say where the label goes, as in "{pattern / LABEL}"')
        self.pattern, self.link = pattern, link

    @property
    def home(self) -> Path:
        """The folder that all the others lie in."""
        parts = self.pattern.parts
        first = next(i for i, part in enumerate(parts) if LABEL in part)
        return Path(*parts[:first])

    def put(self, photo: Path, labels: Sequence[str], dry: bool = False) -> list[Path]:
        """Copy or link a photo for each label; the new files. Those that are there already stay as they are."""
        found = []
        for label in labels:
            folder = Path(*(part.replace(LABEL, safe_name(label)) for part in self.pattern.parts))
            target = self._free(photo, folder)
            if target is not None:
                found.append(target)
                if not dry:
                    self._put(photo, target)
        return found

    def _free(self, photo: Path, folder: Path) -> Path | None:
        """A name in a folder that is not taken; None where the photo is there already."""
        number = 1
        while True:
            target = folder / (photo.name if number == 1 else f"{photo.stem}-{number}{photo.suffix}")
            if not os.path.lexists(target):
                return target
            if target.is_file() and (target.samefile(photo) or (not self.link and _same(photo, target))):
                return None
            number += 1

    def _put(self, photo: Path, target: Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.link:
                with atomic.replacing(target, durable=False) as part:
                    shutil.copy2(photo, part)
                return
            try:
                target.symlink_to(os.path.relpath(photo.absolute(), target.parent.resolve()))
            except (OSError, ValueError):  # Windows asks for rights, or it is another drive
                os.link(photo, target)
        except OSError as error:
            raise MlttaError(f"{target} cannot be written: {error.strerror or error}") from error


def _same(photo: Path, other: Path) -> bool:
    """Whether two files are one photo: the same bytes, or JPEGs of the same image data whose keywords differ."""
    if filecmp.cmp(photo, other, shallow=False):
        return True
    try:
        return Jpeg.of(photo.read_bytes()).rest == Jpeg.of(other.read_bytes()).rest
    except (OSError, ValueError):
        return False
