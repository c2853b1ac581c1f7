"""Images that a diffusion model generated from a photo: FOLDER/<name of the photo>/000.jpg and so on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mltta.errors import ImageError
from mltta.images.find import SUFFIXES
from mltta.images.specs import ViewSpec


def variations_folder(root: str | Path, dataset: str) -> Path:
    """The folder of a dataset's generated images: ROOT/<dataset> if it is there, else ROOT itself."""
    own = generated_folder(root, dataset)
    return own if own.is_dir() else Path(root)


def lacking_variations(folder: str | Path, names: Iterable[str], count: int) -> list[str]:
    """The images that have fewer than ``count`` generated ones, by name."""
    return [name for name in names if len(_images(generated_folder(folder, name))) < count]


def generated_folder(folder: str | Path, name: str) -> Path:
    """Return the folder with the generated views of an image, always inside `folder`."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return Path(folder, *(part for part in parts if part.strip("/") not in ("", "..")))


def generated_files(spec: ViewSpec, name: str | None) -> list[Path]:
    """Return the sorted generated images for an image name; raises ImageError if there are too few."""
    if not name:
        lack = f"has no generated views in {spec.generated}"
        raise ImageError(f"an image without a name {lack}: give it as a file, or give a name")
    own = generated_folder(spec.generated, name)
    files = _images(own)
    if len(files) < spec.count:
        raise ImageError(
            f"{name}: {spec.count} generated views are needed, but {own} contains {len(files)}; "
            "generate more, or use fewer views"
        )
    return files


def _images(folder: Path) -> list[Path]:
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(file for file in found if file.suffix.lower() in SUFFIXES and file.name[0] != ".")
