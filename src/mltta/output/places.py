"""Where the pictures of photos go: under the photos' own names, in folders like theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


class Places:
    """A place for every photo below a folder, never one place for two.

    >>> places = Places(Path("out"), ".png")
    >>> [places(Path("in/sub") / name, Path("in")).as_posix() for name in ("a.jpg", "a.png")]
    ['out/sub/a.png', 'out/sub/a.png.png']
    """

    def __init__(self, folder: Path, suffix: str = ""):
        self.folder, self.suffix = folder, suffix
        self._taken: dict[Path, Path] = {}
        self._of: dict[Path, Path] = {}

    def __call__(self, photo: Path, root: Path | None) -> Path:
        """The place of a photo that was found under a root, or given itself."""
        if photo not in self._of:
            place = next(place for place in self._candidates(photo, root) if place not in self._taken)
            self._taken[place] = photo
            self._of[photo] = place
        return self._of[photo]

    def _candidates(self, photo: Path, root: Path | None) -> Iterator[Path]:
        inner = Path(photo.name) if root is None else photo.relative_to(root)
        own = Path((root or photo.parent).resolve().name)
        for below in (inner, own / inner):
            if self.suffix:
                yield self.folder / below.with_suffix(self.suffix)
            yield self.folder / below.with_name(f"{below.name}{self.suffix}")
        number = 2
        while True:
            yield self.folder / inner.with_name(f"{inner.stem}-{number}{self.suffix or inner.suffix}")
            number += 1
