"""Photos are found to the bottom of a folder, and what looks like one and cannot be read is counted by its suffix."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltta.errors import ImageError
from mltta.images import find
from mltta.images.find import find_images, search_images


def test_find_images_walks_sorted_and_skips_the_hidden_and_the_rest(tmp_path: Path) -> None:
    names = ["b.JPG", "a.png", "sub/c.tiff", "sub/deep/d.webp", "notes.txt", "e.pdf", "x.cr2"]
    hidden = [".hidden.jpg", ".cache/f.jpg", "sub/.git/g.png"]
    for name in names + hidden:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.jpg").mkdir()
    found = [path.relative_to(tmp_path).as_posix() for path in find_images([tmp_path])]
    assert found == ["a.png", "b.JPG", "sub/c.tiff", "sub/deep/d.webp"]


def test_find_images_keeps_given_files_in_the_given_order(tmp_path: Path) -> None:
    for name in ("z.png", "notes.txt", ".hidden.jpg"):
        (tmp_path / name).touch()
    given = [tmp_path / name for name in ("z.png", "notes.txt", ".hidden.jpg")]
    assert find_images(given) == given
    assert find_images(str(given[0])) == [given[0]]


def test_find_images_names_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="gone: no such file or folder"):
        find_images([tmp_path, tmp_path / "gone"])


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def test_phones_formats_are_found(tmp_path: Path) -> None:
    make(tmp_path, "a.HEIC", "b.heif", "c.avif", "d.hif")
    found = search_images(tmp_path)
    assert [path.name for path in found.images] == ["a.HEIC", "b.heif", "c.avif", "d.hif"]
    assert str(found) == ""


def test_what_looks_like_a_photo_and_is_skipped_is_counted_and_explained(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(find, "reads_heif", lambda: False)
    make(tmp_path, "a.HEIC", "b.heic", ".hidden.heic", "notes.txt", "film.mov", "c.jpg")
    found = search_images(tmp_path)
    assert [path.name for path in found.images] == ["c.jpg"]
    assert found.skipped == {".heic": 2}
    assert str(found) == "2 files skipped (.heic: install mltta[heif])"
    make(tmp_path, "d.NEF", "e.psd", "f.jxl", "g.svg")
    found = search_images([tmp_path, tmp_path / "c.jpg"])
    assert found.skipped == {".heic": 2, ".nef": 1, ".psd": 1, ".jxl": 1, ".svg": 1}
    assert found.reasons[".nef"] == "camera raw, export it as JPEG"
    assert str(found).startswith(
        "6 files skipped (2 .heic: install mltta[heif]; 1 .jxl: convert it to JPEG or PNG;"
    )


def test_a_file_given_by_name_is_never_skipped(tmp_path: Path) -> None:
    make(tmp_path, "d.nef")
    assert search_images(tmp_path / "d.nef").images == [tmp_path / "d.nef"]
