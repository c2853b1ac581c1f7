"""What `mltta tag` is given: files, folders, addresses, and - for an image on the standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from mltta.errors import MlttaError
from mltta.images.budget import MAX_BYTES
from mltta.images.find import search_images
from mltta.images.remote import is_url

STDIN = "-"


@dataclass(frozen=True)
class Sources:
    """Images in the order they were given, and paths that are not there."""

    images: list[Any]
    missing: list[str]


def open_sources(given: Sequence[str], allow_urls: bool, pictures: bool) -> Sources:
    """Look for what is given and say on the error stream what was skipped.

    Args:
        pictures: the images are to be shown again later, so that each has to be a file.
    """
    apart = [path for path in given if path == STDIN or is_url(path)]
    if apart and pictures:
        raise MlttaError(f"{apart[0]}: pictures are made of files only; save it first")
    if any(map(is_url, apart)) and not allow_urls:
        raise MlttaError(f"{next(filter(is_url, apart))}: give --allow-urls, and it is fetched")
    paths = [path for path in given if path not in apart]
    missing = [path for path in paths if not Path(path).exists()]
    if len(missing) < len(given):  # what is there is tagged; what is not is listed with the rest that failed
        paths = [path for path in paths if path not in missing]
    found = search_images(paths)
    if found.skipped:
        typer.echo(str(found), err=True)
    images: list[Any] = [_read_stdin() if path == STDIN else path for path in dict.fromkeys(apart)]
    if not images and not found.images:
        raise MlttaError(f"no images in {', '.join(paths)}")
    return Sources([*found.images, *images], missing)


def _read_stdin() -> bytes:
    """One image, no larger than a file may be."""
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if not data:
        raise MlttaError("-: nothing came on the standard input; give an image: mltta tag - < photo.jpg")
    return data
