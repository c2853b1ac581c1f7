"""The manifest of sources, the labels that their terms mean, and what they say is absent."""

from __future__ import annotations

import pytest

from tests.training.clones import source
from training import meanings, sources
from training.repository import Entry


def test_the_manifest_is_small_and_complete():
    manifest = sources.read()
    assert sources.MANIFEST.stat().st_size < 300_000
    assert len({s.repository for s in manifest}) == len(manifest) > 60
    for own in manifest:
        assert len(own.commit) == 40, own.repository
        assert own.license, own.repository
        assert own.photos, own.repository
        assert all(t.strip() for terms in own.photos.values() for t in terms.split("|")), own.repository


def test_terms_come_from_the_longest_folder_a_pattern_a_beginning_or_a_file():
    photos = {"a": "animal", "a/b": "bird|animal", "rooms/*_bed.jpg": "bedroom", "x.png": "axe"}
    own = source(photos={**photos, "y/[1*": "yak", "y/[12*": "yarn"})
    paths = [
        "a/1.jpg",
        "a/b/2.JPG",
        "a/b/c/3.png",
        "a/b/notes.txt",
        "rooms/7_bed.jpg",
        "rooms/7_bath.jpg",
        "x.png",
        "y/[13.png",
        "y/[123.png",
        "y/1.png",
    ]
    assert own.terms([Entry(path, "", 0) for path in paths]) == {
        "a/1.jpg": ("animal",), "a/b/2.JPG": ("bird", "animal"), "a/b/c/3.png": ("bird", "animal"),
        "rooms/7_bed.jpg": ("bedroom",), "x.png": ("axe",),
        "y/[13.png": ("yak",), "y/[123.png": ("yarn",),
    }  # fmt: skip


def test_terms_come_from_a_table():
    about = {"path": "t.csv", "name": "file", "label": "kind", "under": "train"}
    own = source(photos={"cat": "cat", "dog": "dog|animal"}, table=about)
    table = b"file,kind\nC:/photos/1.jpg,dog\n2,cat\n3.jpg,Not sure\n"
    entries = [Entry(path, "", 0) for path in ("test/1.jpg", "train/1.jpg", "train/2.jpg", "train/3.jpg")]
    assert own.terms(entries, table) == {"train/1.jpg": ("dog", "animal"), "train/2.jpg": ("cat",)}


def test_an_unknown_kind_of_absence_is_refused():
    with pytest.raises(ValueError, match="o/r: `absent` must be all, classes or none"):
        source(absent="some")


def test_labels_are_names_of_the_vocabulary_with_what_they_imply():
    assert {"airplane", "aeroplane", "plane"} <= meanings.labels(["aeroplane"])
    assert {"crested auklet", "bird", "animal"} <= meanings.labels(["crested auklet", "bird"])
    assert "dining table" not in meanings.labels(["table"])


def test_only_what_a_source_annotates_is_absent():
    photos = {"bird": "bird", "owl": "owl|bird", "cat": "cat", "player": "player"}
    none, classes = (source(photos=photos, absent=kind) for kind in ("none", "classes"))
    assert meanings.annotated(none) == frozenset()
    assert {"bird", "owl", "cat"} <= meanings.annotated(classes)
    assert meanings.unknown(classes, ["bird"]) >= {"owl"}
    assert "cat" not in meanings.unknown(classes, ["bird"])
    assert "bird" not in meanings.unknown(classes, ["cat"])


@pytest.mark.parametrize("group", sorted(sources.SHOW_PEOPLE))
def test_people_are_never_absent_where_nobody_names_them(group: str):
    photos = {"a.jpg": "woman|hat", "b.jpg": "coat"}
    assert not meanings.annotated(source(photos=photos, absent="all", group=group)) & {
        "person",
        "woman",
        "human",
    }
    assert {"person", "woman"} <= meanings.annotated(source(photos=photos, absent="all", group="scenes"))


def test_in_a_source_with_all_labels_the_rest_is_absent():
    own = source(photos={"a.jpg": "sea|sky", "b.jpg": "tree", "c.jpg": "sunset"}, absent="all")
    absent = meanings.annotated(own) - meanings.labels(["sea", "sky"]) - meanings.unknown(own, ["sea", "sky"])
    assert "tree" in absent
    assert "sunset" not in absent  # it implies the sky that the photo shows
