"""Find the files of a dataset, and report what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from os.path import isfile  # unlike Path's, it takes a name of any length
from pathlib import Path

from mltta.errors import DatasetError
from mltta.storage import reading

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
_SAMPLE = 200  # images checked when a dataset is opened


def as_folder(root: str | os.PathLike[str]) -> Path:
    """Return the given folder; raises DatasetError if it is not one."""
    top = Path(root).expanduser()
    if top.is_dir():
        return top
    if top.is_file():
        todo = "extract it and give the folder" if _is_archive(top.name) else "give its folder"
        raise DatasetError(f"{top} is a file, not a folder: {todo}")
    raise DatasetError(f"no such folder: {top}. Check the spelling of the path")


def given_file(file: str | os.PathLike[str], root: Path) -> Path:
    """Return the given file, as a path or inside the root."""
    path = Path(file).expanduser()
    if found := [place for place in (path, root / path) if place.is_file()]:
        return found[0]
    raise DatasetError(f"no such annotation file: {path}. Check the spelling of the path")


def locate(root: Path, marker: str, places: Sequence[str] = (".",), inner: Sequence[str] = ()) -> Path | None:
    """Find the folder that contains `marker`: root/place, the same one level deeper, or above an inner folder.

    Args:
        places: folders to try in the root; the first match wins.
        inner: names of folders inside the dataset; if the root is one of them, its parents are tried too.
    """
    above, top = [], root.absolute()
    while top.name in inner:
        top = top.parent
        above.append(top)
    for base in (*(root / place for place in places), *above):
        if (base / marker).exists():
            return base
    deeper = [child / place for child in _folders(root) for place in places]
    found = [base for base in deeper if (base / marker).exists()]
    return found[0] if len(found) == 1 else None


def missing(root: Path, what: str, expected: str, hint: str = "") -> DatasetError:
    """Return the error for a folder without the dataset, with expected and found files."""
    trees = _listing(root), expected.splitlines()
    there, wanted = ("".join(f"\n    {line}" for line in own) for own in trees)
    head = f"{what} was not found in {root}. Expected there:{wanted}\nFound there:{there}"
    return DatasetError(head + unextracted(root) + (f"\n{hint}" if hint else ""))


def unextracted(*folders: Path) -> str:
    """Return a message about archives in these folders or one level deeper."""
    found: dict[Path, str] = {}
    for folder in folders:
        for place in (folder, *_folders(folder)):
            for name in filter(_is_archive, _names(place)):
                found.setdefault((place / name).absolute(), str((place / name).relative_to(folder)))
    return "".join(f"\n{name} exists but is not extracted." for name in islice(found.values(), 5))


def place_images(root: Path, what: str, bases: Sequence[Path], names: Sequence[str]) -> list[Path]:
    """Convert the listed names to paths, checking a sample in each base folder.

    Names are tried unchanged, then without their first folder, their first two, and so on; the variant that finds most
    of the sample is used for all. It is an error if most of the sample is missing.
    """
    bases = list(dict.fromkeys(bases))
    relative = [name.replace("\\", "/") for name in names]
    if not relative:
        raise DatasetError(f"{what} lists no images")
    sample = relative[:: -(-len(relative) // _SAMPLE)]
    depth, listed = 1 + max(name.count("/") for name in sample), len(set(relative))
    # Shortened names must be unique.
    cuts = [n for n in range(depth) if not n or len({_without(name, n) for name in relative}) == listed]
    best, most = (bases[0], 0), -1
    for base, cut in ((base, cut) for cut in cuts for base in bases if most < len(sample)):
        hits = sum(isfile(base / _without(name, cut)) for name in sample)
        if hits > most:
            best, most = (base, cut), hits
    base, cut = best
    paths = [base / _without(name, cut) for name in relative]
    if 2 * most < len(sample):
        lost = next(path for path in paths if not isfile(path))
        where = " or ".join(map(str, bases[:2]))
        raise DatasetError(
            f"{what}: {len(sample) - most} of {len(sample)} listed images checked are missing, such as {lost}. "
            f"Extract the images into {where}." + unextracted(root, *bases)
        )
    return paths


def read_text(file: Path) -> str:
    """Read UTF-8 text with any line endings, with or without a byte order mark."""
    try:
        return reading.read_text(file, reading.ANNOTATIONS, DatasetError)
    except FileNotFoundError:
        raise DatasetError(f"{file} is missing" + unextracted(file.parent)) from None
    except UnicodeDecodeError:
        todo = "save it with UTF-8 encoding, or download it again"
        raise DatasetError(f"{file} is not UTF-8 text: {todo}") from None
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror}") from None


def read_lines(file: Path) -> list[tuple[int, str]]:
    """Return the non-blank lines with their numbers."""
    lines = ((number, line.strip()) for number, line in enumerate(read_text(file).split("\n"), start=1))
    return [(number, line) for number, line in lines if line]


def listed_once(file: Path, lines: Iterable[tuple[int, str]]) -> list[str]:
    """Return the images listed in a file; duplicates raise an error."""
    first: dict[str, int] = {}
    for number, name in lines:
        if first.setdefault(name, number) != number:
            raise DatasetError(f"{file}: lines {first[name]} and {number} list the same image, {name}")
    return list(first)


def _without(name: str, folders: int) -> str:
    """Drop leading folders of a path, but not the file name."""
    return name.split("/", folders)[-1]


def _is_archive(name: str) -> bool:
    return name.casefold().endswith(_ARCHIVES)


def _names(folder: Path) -> list[str]:
    """Return sorted names in a folder, at most 5,000; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, 5000) if not entry.name.startswith("."))
    except OSError:
        return []


def _folders(folder: Path) -> list[Path]:
    return [folder / name for name in _names(folder) if (folder / name).is_dir()]


def _listing(folder: Path, shown: int = 12) -> list[str]:
    """List a folder, one entry per line, with a few names from subfolders."""
    lines = []
    for name in (names := _names(folder))[:shown]:
        inside = _names(folder / name)
        some = f": {', '.join(inside[:4])}{', …' if len(inside) > 4 else ''}" if inside else ""
        lines.append(f"{name}/{some}" if (folder / name).is_dir() else name)
    if len(names) > shown:
        lines.append(f"… and {len(names) - shown:,} more")
    return lines or ["nothing"]
