"""Keywords in photos: what is there stays, only ours go again, and no byte of the picture is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mltta.errors import LabelError, MlttaError
from mltta.labels import LabelSet
from mltta.output.keywords.iptc import PHOTOSHOP, Resources
from mltta.output.keywords.jpeg import XMP, Jpeg
from mltta.output.keywords.write import embed, sidecar_of, undo, write_sidecar
from mltta.output.keywords.xmp import Packet
from tests.output.keywords.exiftool import exiftool, needs_exiftool, write_tags
from tests.safety.world import photo

#: as another program writes it: its own namespaces, a title, a keyword, a comment, attributes
FOREIGN = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Other 1.0"><!-- kept -->
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:darktable="http://darktable.sf.net/"
    darktable:xmp_version="5"><dc:title><rdf:Alt><rdf:li xml:lang="x-default">Holidays</rdf:li></rdf:Alt></dc:title>
   <dc:subject><rdf:Bag><rdf:li>family</rdf:li></rdf:Bag></dc:subject></rdf:Description>
 </rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>""".encode()


@pytest.fixture
def jpeg(tmp_path) -> Path:
    file = tmp_path / "a.jpg"
    photo(0, (64, 48)).save(file, quality=90)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    return file


def with_xmp(file: Path, packet: bytes) -> None:
    held = Jpeg.of(file.read_bytes())
    held.put(XMP, packet)
    file.write_bytes(held.content())


def test_embedding_touches_no_byte_of_the_picture_and_undo_gives_the_file_back(jpeg):
    before, times = jpeg.read_bytes(), jpeg.stat().st_mtime_ns
    assert embed(jpeg, ["dog", "Hängebrücke", "traffic light"])
    after = Jpeg.of(jpeg.read_bytes())
    old = Jpeg.of(before)
    assert after.rest == old.rest
    added = [own for own in after.segments if own not in old.segments]
    assert [marker for marker, _ in added] == [0xED, 0xE1] or [marker for marker, _ in added] == [0xE1, 0xED]
    assert [own for own in after.segments if own in old.segments] == old.segments
    assert jpeg.stat().st_mtime_ns == times
    assert not embed(jpeg, ["dog", "Hängebrücke", "traffic light"]), "a second time there is nothing to do"
    assert undo(jpeg) == ["dog", "Hängebrücke", "traffic light"]
    assert jpeg.read_bytes() == before
    assert jpeg.stat().st_mtime_ns == times


@needs_exiftool
def test_exiftool_reads_the_keywords_of_a_jpeg_and_of_a_sidecar(jpeg):
    labels = ["dog", "Hängebrücke", "x" * 70]
    embed(jpeg, labels)
    assert exiftool(jpeg, "Subject", "Keywords") == {
        "XMP-dc:Subject": labels,
        "IPTC:Keywords": ["dog", "Hängebrücke"],
    }, "what is too long for IPTC stands in XMP alone"
    assert "Warning" not in str(exiftool(jpeg, "validate", "warning"))
    write_sidecar(jpeg, labels)
    assert exiftool(sidecar_of(jpeg), "Subject") == {"XMP-dc:Subject": labels}


@needs_exiftool
def test_keywords_and_notes_of_others_are_kept_and_come_back_from_undo(jpeg):
    line = (
        "-Subject=home",
        "-Keywords=home",
        "-Keywords=Zoë",
        "-Title=Trip",
        "-IPTC:City=Rome",
        "-Artist=me",
    )
    write_tags(jpeg, "-codedcharacterset=utf8", *line)
    before, every = jpeg.read_bytes(), exiftool(jpeg, "XMP:all", "IPTC:all", "EXIF:all")
    embed(jpeg, ["Home", "cat"])
    both = exiftool(jpeg, "Subject", "Keywords")
    assert both == {"XMP-dc:Subject": ["home", "cat"], "IPTC:Keywords": ["home", "Zoë", "cat"]}
    notes = {key: value for key, value in every.items() if key not in both}
    assert {"XMP-dc:Title": "Trip", "IPTC:City": "Rome", "IFD0:Artist": "me"}.items() <= notes.items()
    assert notes.items() <= exiftool(jpeg, "XMP:all", "IPTC:all", "EXIF:all").items()
    assert undo(jpeg) == ["cat"]
    assert jpeg.read_bytes() == before


def test_another_run_with_other_labels_takes_back_its_own_and_leaves_the_users(jpeg):
    with_xmp(jpeg, FOREIGN)
    before = jpeg.read_bytes()
    embed(jpeg, ["dog", "cat"])
    embed(jpeg, ["cat", "boat"])
    packet = Packet(Jpeg.of(jpeg.read_bytes()).notes(XMP), "x")
    assert packet.subjects == ["family", "cat", "boat"]
    assert packet.ours() == ["cat", "boat"]
    assert undo(jpeg) == ["cat", "boat"]
    assert jpeg.read_bytes() == before
    kept = Jpeg.of(jpeg.read_bytes())
    assert kept.notes(PHOTOSHOP) is None
    assert kept.notes(XMP) is not None
    assert Packet(kept.notes(XMP), "x").subjects == ["family"]
    for said in (b"Holidays", b"darktable:xmp_version", b"Other 1.0", b"<!-- kept -->"):
        assert said in kept.notes(XMP)
    assert b"mltta" not in kept.notes(XMP)


def test_a_sidecar_is_merged_and_goes_when_nothing_but_ours_was_in_it(jpeg):
    before = jpeg.read_bytes()
    assert write_sidecar(jpeg, ["dog"])
    assert undo(jpeg) == ["dog"]
    assert not sidecar_of(jpeg).exists()
    sidecar_of(jpeg).write_bytes(FOREIGN)
    write_sidecar(jpeg, ["dog"])
    assert Packet(sidecar_of(jpeg).read_bytes(), "x").subjects == ["family", "dog"]
    undo(jpeg)
    assert sidecar_of(jpeg).read_bytes() == FOREIGN
    assert jpeg.read_bytes() == before
    assert sidecar_of(Path("b/a.jpg")).name == "a.jpg.xmp"


def test_a_dry_run_writes_nothing(jpeg):
    before = jpeg.read_bytes()
    assert embed(jpeg, ["dog"], dry=True)
    assert write_sidecar(jpeg, ["dog"], dry=True)
    embed(jpeg, ["dog"])
    embedded = jpeg.read_bytes()
    assert undo(jpeg, dry=True) == ["dog"]
    assert (jpeg.read_bytes(), before != embedded) == (embedded, True)
    assert not sidecar_of(jpeg).exists()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda content: b"GIF89a" + content, "it is not a JPEG"),
        (lambda content: content[:30], "damaged"),
        (lambda content: content[:2] + b"\xff\xe2\x00\x08MPF\0ab" + content[2:], "further pictures"),
        (lambda content: content[:2] + segment(0xED, b"Photoshop 3.0\0rubbish") + content[2:], "Photoshop"),
        (lambda content: content[:2] + segment(0xE1, XMP + b"<a><b>") + content[2:], "its XMP is damaged"),
        (lambda content: content[:2] + segment(0xE1, XMP + b"<!DOCTYPE a><a/>") + content[2:], "entities"),
        (lambda content: content[:2] + segment(0xE1, XMP + b"<a/>") + content[2:], "no RDF"),
    ],
)
def test_what_cannot_be_written_safely_is_left_as_it_is_with_the_reason(jpeg, spoil, said):
    jpeg.write_bytes(spoil(jpeg.read_bytes()))
    before = jpeg.read_bytes()
    with pytest.raises(MlttaError, match=said):
        embed(jpeg, ["dog"])
    assert jpeg.read_bytes() == before


def segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload


def test_iptc_of_an_older_alphabet_keeps_its_letters():
    old = Resources(None)
    old.put(["plain"])
    content = old.content()
    assert content is not None
    latin = content.replace(b"plain", b"caf\xe9s")
    held = Resources(latin)
    assert held.keywords == ["cafés"]
    assert not held.fits("Brücke"), "UTF-8 beside it would make the old word unreadable"
    held.put(["cafés", "dog"])
    assert b"caf\xe9s" in (held.content() or b"")
    assert Resources(held.content()).keywords == ["cafés", "dog"]


@pytest.mark.parametrize("label", ["dog\x07", "dog\ncat", "\ud800", "dog\x9b31m", "\ufffe"])
def test_labels_that_no_photo_should_hold_are_refused(jpeg, label):
    before, why = jpeg.read_bytes(), r"(a control|half a|a code point).* \(U\+[0-9A-F]{4}\)"
    for write in (embed, write_sidecar):
        with pytest.raises(MlttaError, match=rf"a\.jpg.*: the label .* contains {why}, so no keywords"):
            write(jpeg, ["cat", label])
    assert jpeg.read_bytes() == before
    assert not sidecar_of(jpeg).exists()
    with pytest.raises(LabelError, match=f"contains {why}"):
        LabelSet.of(["cat", label])


def test_emoji_and_words_of_any_script_are_keywords(jpeg):
    labels = ["👨‍👩‍👧 family", "звезда", "می‌خواهم"]
    assert embed(jpeg, list(LabelSet.of(labels)))
    assert undo(jpeg) == labels
