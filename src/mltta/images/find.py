"""The photos under files and folders, and those that look like photos and were passed over."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mltta.errors import ImageError
from mltta.images.kinds import SUFFIXES, why_unreadable

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class Found:
    """What a search has found: photos, and how many that cannot be read here, by suffix."""

    images: list[Path]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def reasons(self) -> dict[str, str]:
        """By suffix, what to do about the files that were skipped."""
        return {suffix: why_unreadable(suffix) or "" for suffix in sorted(self.skipped)}

    def __str__(self) -> str:
        """A line about what was skipped; empty if nothing was.

        Example:
            >>> str(Found([], Counter({".cr2": 2, ".psd": 1})))
            "3 files skipped (2 .cr2: a camera's raw file, export it as JPEG; 1 .psd: convert it to JPEG or PNG)"
        """
        if not self.skipped:
            return ""
        total, several = self.skipped.total(), len(self.skipped) > 1
        parts = [
            f"{f'{self.skipped[suffix]:,} ' if several else ''}{suffix}: {reason}"
            for suffix, reason in self.reasons.items()
        ]
        return f"{total:,} file{'s' if total > 1 else ''} skipped ({'; '.join(parts)})"


def search_images(paths: Paths) -> Found:
    """Look for photos under ``paths``: files as they are given, folders searched to the bottom and sorted."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    found = Found([])
    for path in map(Path, given):
        if path.is_dir():
            seen = sorted(_walk(path))
            found.images.extend(file for file in seen if why_unreadable(file.suffix.lower()) is None)
            found.skipped.update(
                suffix for file in seen if why_unreadable(suffix := file.suffix.lower()) is not None
            )
        elif path.exists():
            found.images.append(path)
        else:
            raise no_such(path)
    return found


def no_such(path: str | os.PathLike[str]) -> ImageError:
    """What to raise for a path that leads nowhere."""
    return ImageError(f"{path}: no such file or folder; check the spelling of the path")


def find_images(paths: Paths) -> list[Path]:
    """List the photos under ``paths``."""
    return search_images(paths).images


def _walk(folder: Path) -> Iterator[Path]:
    """Visit every file below a folder that looks like a photo, passing over what is hidden."""

    def refuse(error: OSError) -> None:
        raise ImageError(f"{error.filename}: this folder cannot be read: {error.strerror}") from None

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            suffix = Path(name).suffix.lower()
            if not name.startswith(".") and (suffix in SUFFIXES or why_unreadable(suffix) is not None):
                yield Path(root, name)
