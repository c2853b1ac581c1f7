"""Links that someone planted in a folder do not lead what is written out of it; names are safe on every system."""

from __future__ import annotations

import io
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from mltta.cli.effects import Pictures
from mltta.errors import MlttaError
from mltta.output.keywords.write import write_sidecar
from mltta.output.sorting import Sorting, safe_name
from mltta.output.tags_file import Output
from mltta.serve.answers import export
from mltta.tagger import Tags
from tests.safety import world

links = pytest.mark.skipif(sys.platform == "win32", reason="links need a permission on Windows")


@pytest.fixture
def outside(tmp_path) -> Path:
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


@pytest.fixture
def photo(tmp_path) -> Path:
    world.photo(0).save(tmp_path / "a.png")
    return tmp_path / "a.png"


@links
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("pattern", ["{label}", "by/{label}/all", "{label}/x"])
def test_copies_do_not_follow_a_linked_folder(tmp_path, outside, photo, link, pattern):
    out = tmp_path / "out"
    sorting = Sorting(out / pattern, link)
    planted = sorting.home / "dog"
    planted.parent.mkdir(parents=True)
    planted.symlink_to(outside)
    with pytest.raises(MlttaError, match=r"dog.*cannot be written: a link"):
        sorting.put(photo, ["dog"])
    assert list(outside.iterdir()) == []
    assert [target.is_file() for target in sorting.put(photo, ["cat"])] == [True]


@links
def test_the_folder_of_the_copies_itself_may_be_a_link(tmp_path, outside, photo):
    (tmp_path / "out").symlink_to(outside)
    assert Sorting(tmp_path / "out" / "{label}").put(photo, ["dog"])
    assert (outside / "dog" / "a.png").is_file()


@links
def test_a_sidecar_that_links_to_nothing_does_not_create_it(outside, photo):
    photo.with_name("a.png.xmp").symlink_to(outside / "new.xmp")
    with pytest.raises(MlttaError, match="a link to a file that does not exist"):
        write_sidecar(photo, ["dog"])
    assert list(outside.iterdir()) == []


@links
def test_pictures_do_not_follow_links(tmp_path, outside, photo):
    target = outside / "kept.png"
    target.write_bytes(b"kept")
    pictures = Pictures(tmp_path / "out", heat=False)
    (tmp_path / "out" / "a.png").symlink_to(target)
    pictures.prepare({photo: None})
    with pytest.raises(MlttaError, match="a link"):
        pictures(photo, {}, Tags([], present=[], image="a.png"))
    assert target.read_bytes() == b"kept"


@links
@pytest.mark.parametrize("name", [".t.csv.mltta", ".t.csv.mltta.lock"])
def test_journals_and_locks_do_not_follow_links(tmp_path, outside, name):
    for target in (outside / "new", outside / "kept"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(target)
        if target.name == "kept":
            target.write_bytes(b"kept")
        with suppress(MlttaError), Output({tmp_path / "t.csv": "csv"}) as output:
            output.begin({}, ["dog"])
            output.finish([])
        assert [(file.name, file.read_bytes()) for file in outside.iterdir()] == (
            [("kept", b"kept")] if target.name == "kept" else []
        )


@links
@pytest.mark.parametrize("name", ["images.jsonl", "scores.f32", "targets.i8", "run.json", ".lock"])
@pytest.mark.parametrize("fresh", [False, True])
def test_results_do_not_follow_links(tmp_path, outside, name, fresh):
    from mltta.evaluation.writing import ResultWriter

    folder = tmp_path / "result"
    folder.mkdir()
    (outside / "kept").write_bytes(b"kept")
    (folder / name).symlink_to(outside / "kept")
    with suppress(MlttaError):
        ResultWriter(folder, {"method": "clip"}, world.np.zeros((2, 3), "i1"), fresh=fresh).close()
    assert (outside / "kept").read_bytes() == b"kept"


@pytest.mark.parametrize(
    "name",
    ["COM¹", "lpt³.txt", "CONIN$", "conout$", "con .jpg", "NUL", "a?b", "a:b", "a\x1bb", "a\x9bb", "x. . "],
)
def test_names_are_safe_on_windows_too(name):
    safe = safe_name(name)
    assert safe != name
    assert not set(safe) & set('<>:"/\\|?*\x1b\x9b')
    assert safe_name(safe) == safe
    content, _, _ = export("xmp", False, [{"image": name, "present": ["dog"]}])
    assert zipfile.ZipFile(io.BytesIO(content)).namelist() == [f"{safe}.xmp"]
