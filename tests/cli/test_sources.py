"""What `mltta tag` takes: files, folders, an image on the standard input, addresses where they are allowed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mltta.cli.sources import open_sources
from mltta.errors import ImageError, MlttaError
from tests.test_tagger import photo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photo(0).save(tmp_path / "a.png")
    (tmp_path / "b.cr2").touch()
    return tmp_path


def test_what_a_folder_holds_and_cannot_be_read_is_said_on_the_error_stream(folder, capsys):
    found = open_sources([str(folder), "gone.jpg"], False, False)
    assert (found.images, found.missing) == ([folder / "a.png"], ["gone.jpg"])
    said = capsys.readouterr()
    assert said.err == "1 file skipped (.cr2: a camera's raw file, export it as JPEG)\n"
    assert said.out == ""


def test_a_folder_without_images_says_so_after_what_was_skipped(folder, capsys):
    (folder / "a.png").unlink()
    with pytest.raises(MlttaError, match="no images in"):
        open_sources([str(folder)], False, False)
    assert "1 file skipped" in capsys.readouterr().err


def test_a_lone_path_that_is_not_there_is_an_error():
    with pytest.raises(ImageError, match="gone: no such file or folder"):
        open_sources(["gone"], False, False)


def test_a_dash_is_an_image_on_the_standard_input(folder, monkeypatch):
    data = (folder / "a.png").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert open_sources(["-"], False, False).images == [data]
    with pytest.raises(MlttaError, match="nothing came on the standard input"):
        open_sources(["-"], False, False)
    with pytest.raises(MlttaError, match="pictures are made of files only"):
        open_sources(["-"], False, True)


def test_addresses_are_taken_only_where_they_are_allowed(folder):
    url = "https://example.org/a.jpg"
    assert open_sources([url, str(folder / "a.png")], True, False).images == [folder / "a.png", url]
    with pytest.raises(MlttaError, match="give --allow-urls"):
        open_sources([url], False, False)
