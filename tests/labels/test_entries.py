"""Hierarchies: what a user's tree changes is what is written, never what is scored."""

from __future__ import annotations

import pytest

from mltta import LabelSet, Tagger
from mltta.labels.doubts import doubts
from mltta.labels.languages import in_language

#: as exported by Lightroom: groups that are not exported in brackets, synonyms in braces
LIGHTROOM = """[WHAT]
	animal
		dog
			{puppy}
			{hound}
			poodle
		cat
	[places]
		beach
vehicle
	car
"""


def test_paths_are_read_with_arrows_and_bars_and_bars_with_spaces_are_synonyms(tmp_path):
    labels = LabelSet.of(["animal > dog > poodle", "animal|cat", "sofa | couch", "plant>tree | oak", "car"])
    assert labels.names == ("poodle", "cat", "sofa", "tree", "car")
    assert labels.keywords == ("animal|dog|poodle", "animal|cat", "sofa", "plant|tree", "car")
    assert labels.synonyms == ((), (), ("couch",), ("oak",), ())
    assert labels.display == labels.names
    file = tmp_path / "labels.txt"
    file.write_text("# mine\n- animal > dog\n- animal > cat | kitty\n", encoding="utf-8")
    assert LabelSet.from_file(file).keywords == ("animal|dog", "animal|cat")
    assert LabelSet.of("animal > dog, car").keywords == ("animal|dog", "car")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_keyword_list_of_lightroom_is_read(tmp_path, encoding, ends):
    file = tmp_path / "lightroom.txt"
    file.write_bytes(LIGHTROOM.replace("\n", ends).encode(encoding))
    labels = LabelSet.of(str(file))
    assert labels.names == ("animal", "dog", "poodle", "cat", "beach", "vehicle", "car")
    assert labels.keywords == (
        *("WHAT|animal", "WHAT|animal|dog", "WHAT|animal|dog|poodle", "WHAT|animal|cat"),
        *("WHAT|places|beach", "vehicle", "vehicle|car"),
    )
    assert labels.synonyms[1] == ("puppy", "hound")


def test_a_hierarchy_changes_what_is_written_and_not_the_scores(sample_photos):
    flat = Tagger(labels=["dog", "cat", "tree"], keywords_from=0.0, threshold=0.0)(sample_photos)
    tagger = Tagger(labels=["animal > dog", "animal > cat", "plant|tree"], keywords_from=0.0, threshold=0.0)
    tree = tagger(sample_photos)
    assert list(tree) == list(flat)
    assert set(tree.keywords) == {"animal|dog", "animal|cat", "plant|tree"}
    assert set(flat.keywords) == {"dog", "cat", "tree"}


@pytest.fixture
def sample_photos():
    from tests.safety.world import photo

    return photo(1, (80, 60))


def test_a_hierarchy_survives_synonyms_languages_and_picking():
    labels = LabelSet.of(["animal > dog", "car"])
    assert in_language(labels, "de").keywords == ("Tier|Hund", "Auto")
    assert labels.pick([0]).keywords == ("animal|dog",)


def test_labels_that_are_not_things_are_named_with_the_reason():
    given = [
        "dog",
        "2 dogs",
        "three people",
        "happy",
        "red car",
        "blurry",
        "red panda",
        "black and white",
        "the dog",
    ]
    said = doubts(given)
    named = [note.partition(": ")[2] for note in said]
    assert named == [
        '"2 dogs", "three people"',
        '"happy"',
        '"red car"',
        '"blurry"',
    ]
    assert "not counted" in said[0]
    assert doubts(LabelSet.load("everyday")) == []
    assert Tagger(labels=["dog", "happy"], method="clip").notes == doubts(["happy"])
