"""Copies and links of photos sorted by label, and paths of pictures that mirror the photos' folders."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, count, takewhile
from pathlib import Path

from mltta.errors import ConfigError
from mltta.output.keywords.jpeg import Jpeg
from mltta.storage import atomic

LABEL = "{label}"
#: device names reserved by Windows
_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[\d¹²³])\s*(\..*)?$", re.IGNORECASE)


def safe_name(label: str, most: int = 120) -> str:
    """Return a folder name for a label that is valid on every system.

    >>> [safe_name(label) for label in ("traffic light", "salt/pepper", "..", "Aux", "what?")]
    ['traffic light', 'salt_pepper', '_', '_Aux', 'what_']
    """
    name = re.sub(r'[<>:"/\\|?*\x00-\x1f\x7f-\x9f]', "_", label).strip().rstrip(". ")
    name = name.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
    return f"_{name}" if not name or _DEVICES.match(name) else name


class Sorting:
    """Copy or link photos into one folder per label.

    Args:
        pattern: target folder, containing {label}.
        link: make links instead of copies.
    """

    def __init__(self, pattern: Path, link: bool = False):
        if LABEL not in str(pattern):
            option = "--link-to" if link else "--copy-to"
            raise ConfigError(f'{option} {pattern}: the path must contain {LABEL}, as in "{pattern / LABEL}"')
        self.pattern, self.link = pattern, link

    @property
    def home(self) -> Path:
        """The common parent of the label folders."""
        return Path(*takewhile(lambda part: LABEL not in part, self.pattern.parts))

    def put(self, photo: Path, labels: Sequence[str], dry: bool = False) -> list[Path]:
        """Copy or link a photo for each label and return the new files; existing ones are not changed."""
        found = []
        for label in labels:
            folder = Path(*(part.replace(LABEL, safe_name(label)) for part in self.pattern.parts))
            if (target := self._free(photo, folder)) is not None:
                found.append(target)
                if not dry:
                    self._put(photo, target)
        return found

    def _free(self, photo: Path, folder: Path) -> Path | None:
        """Return an unused name in a folder; None if the photo is already there."""
        for number in count(1):
            target = folder / (photo.name if number == 1 else f"{photo.stem}-{number}{photo.suffix}")
            if not os.path.lexists(target):
                return target
            if target.is_file() and (target.samefile(photo) or (not self.link and _same(photo, target))):
                return None
        raise AssertionError  # count never ends

    def _put(self, photo: Path, target: Path) -> None:
        with atomic.writing(target):
            atomic.refuse_links(target, self.home)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.link:
                with atomic.replacing(target, durable=False) as part:
                    shutil.copy2(photo, part)
                return
            try:
                target.symlink_to(os.path.relpath(photo.absolute(), target.parent.resolve()))
            except (OSError, ValueError):  # Windows requires permission; or another drive
                os.link(photo, target)


def _same(photo: Path, other: Path) -> bool:
    """Whether two files are the same photo: equal bytes, or JPEGs that differ only in metadata."""
    same = filecmp.cmp(photo, other, shallow=False)
    with suppress(OSError, ValueError):
        return same or Jpeg.of(photo.read_bytes()).rest == Jpeg.of(other.read_bytes()).rest
    return False


class PicturePaths:
    """Unique output paths for pictures of photos, which keep the photos' names and folder structure.

    >>> paths = PicturePaths(Path("out"))
    >>> [paths(Path("in/sub") / name, Path("in")).as_posix() for name in ("a.jpg", "a.png")]
    ['out/sub/a.png', 'out/sub/a.png.png']
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._of: dict[Path, Path] = {}
        self._taken: set[Path] = set()

    def __call__(self, photo: Path, root: Path | None) -> Path:
        """Return the path for a photo that was found under a root, or given itself (None)."""
        if photo not in self._of:
            inner = Path(photo.name) if root is None else photo.relative_to(root)
            own = Path((root or photo.parent).resolve().name)
            named = [name for one in (inner, own / inner) for name in (one.with_suffix(".png"), f"{one}.png")]
            numbered = (inner.with_name(f"{inner.stem}-{number}.png") for number in count(2))
            places = (self.folder / name for name in chain(named, numbered))
            self._of[photo] = next(path for path in places if path not in self._taken)
            self._taken.add(self._of[photo])
        return self._of[photo]
