"""Small pictures on disk for the trees the tests build."""

from __future__ import annotations

from pathlib import Path

from PIL import Image


def save_pictures(folder: Path, *names: str, mode: str = "RGB") -> None:
    """Write one tiny picture a name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (4, 3), 128 if mode == "L" else (200, 30, 30)).save(folder / name)
