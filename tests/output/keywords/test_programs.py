"""What each photo program would see: its documented or published reading order, applied to what exiftool reads.

Sources: docs.immich.app/features/xmp-sidecars and Immich's metadata.service.ts; digiKam's
dmetadatasettingscontainer.cpp; darktable's exif.cc and lightroom.c; PhotoPrism's xmp_document.go and data.go;
learn.microsoft.com, System.Keywords; Adobe's help on metadata and the guidelines of the Metadata Working Group.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mltta.errors import MlttaError
from mltta.output.keywords.write import embed, sidecar_of, undo, write_sidecar
from tests.output.keywords.exiftool import exiftool, needs_exiftool, write_tags
from tests.safety.world import photo

ROOT = Path(__file__).parents[3]
pytestmark = needs_exiftool
TAGS, HIERARCHY, SUBJECT, IPTC = (
    *("XMP-digiKam:TagsList", "XMP-lr:HierarchicalSubject", "XMP-dc:Subject"),
    "IPTC:Keywords",
)
READ = [name.partition(":")[2] for name in (TAGS, HIERARCHY, SUBJECT, IPTC)]


def found(tags: dict[str, Any], key: str) -> list[str]:
    held = tags.get(key, [])
    return [str(one) for one in (held if isinstance(held, list) else [held])]


def first(tags: dict[str, Any], *keys: str) -> list[str]:
    """The first list that is not empty, with levels separated by |."""
    key = next((key for key in keys if found(tags, key)), keys[-1])
    return [word.replace("/", "|") if key == TAGS else word for word in found(tags, key)]


def immich(photo: Path) -> list[str]:
    """Embedded tags, overridden one by one by those of photo.jpg.xmp, or else photo.xmp."""
    beside = next((one for one in (Path(f"{photo}.xmp"), photo.with_suffix(".xmp")) if one.exists()), None)
    tags = exiftool(photo, *READ) | (exiftool(beside, *READ) if beside else {})
    return first(tags, TAGS, HIERARCHY, IPTC)


def digikam(photo: Path) -> list[str]:
    """photo.jpg.xmp if it is there, else the photo."""
    beside = Path(f"{photo}.xmp")
    return first(exiftool(beside if beside.exists() else photo, *READ), TAGS, HIERARCHY, SUBJECT, IPTC)


def darktable(photo: Path) -> list[str]:
    beside = Path(f"{photo}.xmp")
    tags = exiftool(beside if beside.exists() else photo, *READ)
    return first(tags, HIERARCHY, SUBJECT, *([] if beside.exists() else [IPTC]))


def lightroom(photo: Path) -> tuple[list[str], list[str]]:
    """Hierarchical and flat keywords: of photo.xmp for raw photos, of the photo itself for others."""
    raw = photo.suffix.lower() in (".cr3", ".nef", ".arw")
    tags = exiftool(photo.with_suffix(".xmp") if raw else photo, *READ)
    return found(tags, HIERARCHY), found(tags, SUBJECT) or found(tags, IPTC)


def photoprism(photo: Path) -> list[str]:
    """Inside the photo, exiftool's tag Keywords."""
    return found(exiftool(photo, *READ), IPTC)


def explorer(photo: Path) -> set[str]:
    """XMP and IPTC together."""
    tags = exiftool(photo, *READ)
    return {*found(tags, SUBJECT), *found(tags, IPTC)}


@pytest.fixture
def jpeg(tmp_path) -> Path:
    file = tmp_path / "a.jpg"
    photo(0, (64, 48)).save(file)
    return file


PATHS, FLAT = ["Auto|animal|dog", "Auto|boat"], ["Auto", "animal", "dog", "boat"]


def test_every_program_sees_keywords_that_are_embedded(jpeg):
    embed(jpeg, PATHS)
    assert immich(jpeg) == digikam(jpeg) == darktable(jpeg) == PATHS
    assert lightroom(jpeg) == (PATHS, FLAT)
    assert photoprism(jpeg) == FLAT
    assert explorer(jpeg) == set(FLAT)
    assert found(exiftool(jpeg, "MWG:Keywords"), "MWG:Keywords") == FLAT


def test_programs_that_read_sidecars_see_keywords_in_them(jpeg):
    write_sidecar(jpeg, PATHS)
    assert immich(jpeg) == digikam(jpeg) == darktable(jpeg) == PATHS
    assert lightroom(jpeg) == ([], []), "Lightroom ignores sidecars of JPEGs"


@pytest.mark.parametrize("suffix", [".cr3", ".heic", ".png", ".tif", ".mov"])
def test_sidecars_of_other_formats_hold_flat_and_hierarchical_keywords(tmp_path, suffix):
    file = tmp_path / f"a{suffix}"
    file.write_bytes(b"\0\0\0\x18ftypcrx \0rest")
    write_sidecar(file, PATHS, naming="adobe")
    assert sidecar_of(file, "adobe").name == "a.xmp"
    tags = exiftool(tmp_path / "a.xmp", *READ)
    assert (found(tags, SUBJECT), found(tags, HIERARCHY)) == (FLAT, PATHS)
    assert found(tags, TAGS) == ["Auto/animal/dog", "Auto/boat"]
    if suffix == ".cr3":
        assert lightroom(file) == (PATHS, FLAT)
    write_sidecar(file, ["cat"])
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([file.name, "a.xmp"]), (
        "an existing one is used"
    )
    undo(file)
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_short_name_that_two_photos_would_share_is_refused(tmp_path):
    for name in ("a.cr3", "a.jpg"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        MlttaError, match=r"a\.xmp: this sidecar would be shared by a\.cr3, a\.jpg; use --keywords"
    ):
        write_sidecar(tmp_path / "a.jpg", ["dog"], naming="adobe")
    assert write_sidecar(tmp_path / "a.jpg", ["dog"])
    assert (tmp_path / "a.jpg.xmp").exists()


@pytest.mark.parametrize(
    ("tags", "sees"),
    [
        (["-Subject=family", "-Keywords=family"], ["family"]),
        (["-HierarchicalSubject=people|family", "-Subject=family", "-Subject=people"], ["people|family"]),
        (["-TagsList=people/family", "-Subject=family"], ["people|family"]),
        (["-Keywords=family"], ["family"]),
    ],
)
def test_keywords_of_the_user_stay_visible_in_programs_that_read_one_list_only(jpeg, tags, sees):
    """Immich and digiKam read the first list that is not empty, so a new list would hide the user's."""
    write_tags(jpeg, *tags)
    for write in (embed, write_sidecar):
        write(jpeg, ["animal|dog"])
        assert immich(jpeg) == digikam(jpeg) == [*sees, "animal|dog"]
        assert set(darktable(jpeg)) == {*sees, "animal|dog"}
    assert {"family", "animal", "dog"} <= explorer(jpeg)
    undo(jpeg)
    assert immich(jpeg) in (sees, []), "without IPTC and hierarchy Immich sees no flat XMP keywords"


def test_a_sidecar_of_lightroom_is_used_and_keeps_what_it_says(tmp_path):
    file = tmp_path / "a.nef"
    file.write_bytes(b"II*\0raw")
    write_tags(
        file.with_suffix(".xmp"), "-XMP-dc:Subject=family", "-XMP:Rating=4", "-XMP-crs:Exposure2012=1.5"
    )
    before = file.with_suffix(".xmp").read_bytes()
    write_sidecar(file, ["dog"])
    assert lightroom(file) == (["family", "dog"], ["family", "dog"])
    tags = exiftool(file.with_suffix(".xmp"), "Rating", "Exposure2012")
    assert tags == {"XMP-xmp:Rating": 4, "XMP-crs:Exposure2012": 1.5}
    undo(file)
    assert file.with_suffix(".xmp").read_bytes() == before


def test_the_sample_photos_take_keywords_and_give_them_back(tmp_path):
    for source in sorted((ROOT / "examples/photos").glob("*.jpg"))[:6]:
        file = tmp_path / source.name
        shutil.copy2(source, file)
        embed(file, PATHS)
        assert immich(file) == PATHS
        undo(file)
        assert file.read_bytes() == source.read_bytes()
