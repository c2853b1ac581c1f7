"""Photos sorted by label: folders that any system takes, nothing written over, nothing copied twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltta.errors import ConfigError
from mltta.output.keywords.write import embed
from mltta.output.sorting import PicturePaths, Sorting, safe_name
from tests.safety.world import photo


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    for seed, name in enumerate(["one", "two"]):
        (tmp_path / name).mkdir()
        photo(seed).save(tmp_path / name / "x.jpg")
    return [tmp_path / "one/x.jpg", tmp_path / "two/x.jpg"]


def test_copies_of_one_name_stand_beside_each_other_and_are_made_once(photos, tmp_path):
    sorting = Sorting(tmp_path / "by" / "{label}")
    assert sorting.home == tmp_path / "by"
    for file in photos:
        sorting.put(file, ["dog", "a/b"])
    found = sorted(str(file.relative_to(tmp_path / "by")) for file in (tmp_path / "by").rglob("*.jpg"))
    assert found == ["a_b/x-2.jpg", "a_b/x.jpg", "dog/x-2.jpg", "dog/x.jpg"]
    assert (tmp_path / "by/dog/x-2.jpg").read_bytes() == photos[1].read_bytes()
    embed(photos[0], ["dog"])
    assert [sorting.put(file, ["dog", "a/b"]) for file in photos] == [[], []], (
        "keywords make no other photo of it"
    )


def test_a_file_that_is_there_is_never_written_over(photos, tmp_path):
    (tmp_path / "by/dog").mkdir(parents=True)
    (tmp_path / "by/dog/x.jpg").write_text("mine")
    assert Sorting(tmp_path / "by/{label}").put(photos[0], ["dog"]) == [tmp_path / "by/dog/x-2.jpg"]
    assert (tmp_path / "by/dog/x.jpg").read_text() == "mine"


def test_links_lead_to_the_photo_and_a_dry_run_makes_none(photos, tmp_path):
    sorting = Sorting(tmp_path / "by/{label} photos", link=True)
    assert sorting.put(photos[0], ["dog"], dry=True) == [tmp_path / "by/dog photos/x.jpg"]
    assert not (tmp_path / "by").exists()
    sorting.put(photos[0], ["dog"])
    assert (tmp_path / "by/dog photos/x.jpg").samefile(photos[0])
    assert sorting.put(photos[0], ["dog"]) == []
    assert sorting.put(photos[1], ["dog"]) == [tmp_path / "by/dog photos/x-2.jpg"]


def test_a_pattern_without_a_label_is_refused():
    with pytest.raises(ConfigError, match=r"sorted/\{label\}"):
        Sorting(Path("sorted"))


@pytest.mark.parametrize(
    "label", ["", ".", "..", "../../etc", "/etc/passwd", "C:\\x", "nul", "a\0b", "x" * 300, "犬 / dog"]
)
def test_no_label_leads_out_of_its_folder(label):
    name = safe_name(label)
    assert name not in ("", ".", "..")
    assert not set(name) & set('/\\:*?"<>|\0')
    assert len(name.encode()) <= 121


def test_two_photos_never_have_one_place(tmp_path):
    places = PicturePaths(Path("out"))
    root, other = tmp_path / "in", tmp_path / "other"
    found = [
        places(root / "a.jpg", root),
        places(root / "a.png", root),
        places(root / "sub/a.jpg", root),
        places(other / "a.jpg", other),
        places(Path("z/a.jpg"), None),
        places(root / "a.jpg", root),
    ]
    assert [str(place) for place in found] == [
        "out/a.png",
        "out/a.png.png",
        "out/sub/a.png",
        "out/a.jpg.png",
        "out/z/a.png",
        "out/a.png",
    ]
