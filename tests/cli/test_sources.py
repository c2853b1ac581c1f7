"""What `mltta tag` takes: files, folders, an image on the standard input, addresses where they are allowed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mltta.cli.inputs import Sources
from mltta.errors import ConfigError, MlttaError
from tests.cli.test_cli import MODEL, mltta
from tests.test_tagger import photo

CLIP = ["--labels", "dog, cat", *MODEL, "--method", "clip"]
URL = "https://example.org/a.jpg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photo(0).save(tmp_path / "a.png")
    (tmp_path / "b.cr2").touch()
    return tmp_path


def test_what_a_folder_holds_and_cannot_be_read_is_said(folder):
    sources = Sources([folder])
    assert sources.find() == [folder / "a.png"]
    assert sources.skipped == "1 file skipped (.cr2: camera raw, export it as JPEG)"


def test_skipped_files_are_said_on_the_error_stream(folder):
    done = mltta("tag", folder, *CLIP)
    assert "1 file skipped (.cr2: camera raw" in done.stderr
    assert "skipped" not in mltta("tag", folder, *CLIP, "--quiet").stderr
    (folder / "a.png").unlink()
    done = mltta("tag", folder, *CLIP, check=2)
    assert "no images in" in done.stderr
    assert "1 file skipped" in done.stderr


def test_a_dash_is_an_image_on_the_standard_input(folder, monkeypatch):
    data = (folder / "a.png").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    sources = Sources(["-"])
    assert sources.others == [data]
    assert [str(source) for source in sources.find()] == ["-"]
    with pytest.raises(ConfigError, match="-o needs named files"):
        sources.refuse_others(effects=False, output=True)
    with pytest.raises(MlttaError, match="Standard input is empty"):
        Sources(["-"])


def test_addresses_are_taken_only_where_they_are_allowed(folder):
    sources = Sources([URL, str(folder / "a.png"), URL], allow_urls=True)
    assert sources.others == [URL]
    assert sources.find() == [folder / "a.png", URL]
    sources.refuse_others(effects=False, output=True)
    with pytest.raises(ConfigError, match="need files; save it first"):
        sources.refuse_others(effects=True, output=False)
    with pytest.raises(MlttaError, match="use --allow-urls"):
        Sources([URL])
