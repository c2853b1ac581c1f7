"""Existing keywords in every form that XMP allows: kept with their bytes, or the photo is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltta.errors import MlttaError
from mltta.output.keywords.jpeg import XMP, Jpeg
from mltta.output.keywords.write import embed, sidecar_of, undo, users_keywords, write_sidecar
from mltta.output.keywords.xmp import Packet
from tests.output.keywords.exiftool import exiftool, needs_exiftool, write_tags
from tests.output.keywords.test_write import FOREIGN, with_xmp
from tests.safety.world import photo

ITEMS = "<rdf:li>family</rdf:li>"
LIST = f"<rdf:Bag>{ITEMS}</rdf:Bag>".encode()
#: what a program may have written in the place of a plain list, and the keywords in it
KEPT = {
    "structured items": (
        '<rdf:Bag><rdf:li rdf:parseType="Resource"><rdf:value>family</rdf:value><dc:x>a</dc:x></rdf:li></rdf:Bag>',
        ["family"],
    ),
    "described items": (
        "<rdf:Bag><rdf:li><rdf:Description><rdf:value>family</rdf:value></rdf:Description></rdf:li></rdf:Bag>",
        ["family"],
    ),
    "items with a language": ('<rdf:Bag><rdf:li xml:lang="de">Familie</rdf:li></rdf:Bag>', ["Familie"]),
    "an item with an address": ('<rdf:Bag><rdf:li rdf:resource="urn:x"/></rdf:Bag>', []),
    "an ordered list": ("<rdf:Seq><rdf:li>b</rdf:li><rdf:li>a</rdf:li></rdf:Seq>", ["b", "a"]),
    "a list with a name": (f'<rdf:Bag rdf:ID="x">{ITEMS}</rdf:Bag>', ["family"]),
    "spaces around words": ("<rdf:Bag><rdf:li> my family\t</rdf:li></rdf:Bag>", [" my family\t"]),
    "escaped letters": (
        "<rdf:Bag><rdf:li>R&amp;D &#x263A; <![CDATA[<b>]]></rdf:li></rdf:Bag>",
        ["R&D ☺ <b>"],
    ),
    "bare text": ("family &amp; friends", ["family & friends"]),
    "an empty list": ("<rdf:Bag/>", []),
    "an empty list with a space": ("<rdf:Bag />", []),
    "nothing": ("", []),
}
REFUSED = {
    "text beside a list": f"family<rdf:Bag>{ITEMS}</rdf:Bag>",
    "alternatives": f"<rdf:Alt>{ITEMS}</rdf:Alt>",
    "a nested description": f"<rdf:Description><rdf:value>{LIST.decode()}</rdf:value></rdf:Description>",
    "two lists": f"{LIST.decode()}{LIST.decode()}",
    "something else in a list": "<rdf:Bag><dc:word>family</dc:word></rdf:Bag>",
}


@pytest.fixture
def jpeg(tmp_path) -> Path:
    file = tmp_path / "a.jpg"
    photo(0, (64, 48)).save(file, quality=90)
    return file


def spoiled(form: str) -> bytes:
    odd = FOREIGN.replace(LIST, form.encode())
    assert odd != FOREIGN
    return odd


def subjects(file: Path) -> list[str]:
    content = file.read_bytes() if file.suffix == ".xmp" else Jpeg.of(file.read_bytes()).notes(XMP)
    return Packet(content, "x").subjects


@pytest.mark.parametrize("form", KEPT)
def test_keywords_are_kept_in_their_form_and_undo_restores_every_byte(jpeg, form):
    text, words = KEPT[form]
    with_xmp(jpeg, spoiled(text))
    sidecar_of(jpeg).write_bytes(spoiled(text))
    before = jpeg.read_bytes()
    assert subjects(jpeg) == words
    assert embed(jpeg, ["dog"])
    assert write_sidecar(jpeg, ["dog"])
    for file in (jpeg, sidecar_of(jpeg)):
        assert subjects(file) == [*words, "dog"]
        assert (text.rpartition("</rdf:")[0] or text if words else "Holidays").encode() in file.read_bytes()
    assert undo(jpeg) == ["dog"]
    assert (jpeg.read_bytes(), sidecar_of(jpeg).read_bytes()) == (before, spoiled(text))


@needs_exiftool
@pytest.mark.parametrize("form", KEPT)
def test_exiftool_reads_the_same_and_ours_from_every_form(jpeg, form):
    text, words = KEPT[form]
    with_xmp(jpeg, spoiled(text))
    before = exiftool(jpeg, "XMP:all")
    embed(jpeg, ["dog"])
    after = exiftool(jpeg, "XMP:all", "-XMP-mltta:all", "-XMP-lr:all", "-XMP-digiKam:all", "validate")
    if words:
        said = before["XMP-dc:Subject"]
        assert after.pop("XMP-dc:Subject") == [*(said if isinstance(said, list) else [said]), "dog"]
    else:
        assert "dog" in str(after.pop("XMP-dc:Subject"))
    before.pop("XMP-dc:Subject", None)
    assert before.items() <= after.items()
    assert "Error" not in json.dumps(after)


@pytest.mark.parametrize("form", REFUSED)
def test_keywords_in_a_form_that_could_be_lost_are_refused_and_the_photo_is_left_alone(jpeg, form):
    odd = spoiled(REFUSED[form])
    with_xmp(jpeg, odd)
    sidecar_of(jpeg).write_bytes(odd)
    before = jpeg.read_bytes()
    for write in (embed, write_sidecar):
        with pytest.raises(MlttaError, match=r"a\.jpg.*file was not changed"):
            write(jpeg, ["dog"])
    assert (jpeg.read_bytes(), sidecar_of(jpeg).read_bytes()) == (before, odd)


def test_two_properties_or_one_as_an_attribute_are_refused(jpeg):
    for odd in (
        FOREIGN.replace(b"</rdf:Description>", b"<dc:subject>x</dc:subject></rdf:Description>"),
        FOREIGN.replace(b'rdf:about=""', b'rdf:about="" dc:subject="x"').replace(b"xmlns:dc", b"xmlns:dc", 1),
    ):
        with_xmp(jpeg, odd)
        before = jpeg.read_bytes()
        with pytest.raises(MlttaError, match="unusual form"):
            embed(jpeg, ["dog"])
        assert jpeg.read_bytes() == before


def test_a_packet_with_other_prefixes_and_a_default_namespace_is_read_and_written(jpeg):
    rdf, dc = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://purl.org/dc/elements/1.1/"
    odd = f"""<RDF xmlns="{rdf}" xmlns:r="{rdf}"><Description r:about="uuid:1" xmlns:d='{dc}'><d:subject>
      <Bag><li>family</li></Bag></d:subject></Description></RDF>""".encode()
    sidecar_of(jpeg).write_bytes(odd)
    write_sidecar(jpeg, ["dog & cat"])
    packet = Packet(sidecar_of(jpeg).read_bytes(), "x")
    assert packet.subjects == ["family", "dog & cat"]
    assert packet.items("tags") == ["family", "dog & cat"]
    assert b'rdf:about="uuid:1"' in packet.content
    undo(jpeg)
    assert sidecar_of(jpeg).read_bytes() == odd


@pytest.mark.parametrize(
    "content",
    [
        FOREIGN.decode().encode("utf-16"),
        b"<?xml version='1.0' encoding='ISO-8859-1'?>" + FOREIGN.partition(b"?>\n")[2],
        FOREIGN.replace(b"Holidays", b"Holi\x1bdays"),
        FOREIGN.replace(b"Holidays", b"Holi\0days"),
        FOREIGN.replace(b"Holidays", b"Holi\xffdays"),
        b"",
        b"\0" * 40,
    ],
)
def test_a_sidecar_in_another_encoding_or_damaged_is_refused(jpeg, content):
    sidecar_of(jpeg).write_bytes(content)
    with pytest.raises(MlttaError, match=r"a\.jpg\.xmp: its XMP is"):
        write_sidecar(jpeg, ["dog"])
    assert sidecar_of(jpeg).read_bytes() == content


@needs_exiftool
@pytest.mark.parametrize("place", ["embed", "sidecar"])
def test_if_another_program_changed_the_file_undo_removes_only_our_keywords(jpeg, place):
    with_xmp(jpeg, FOREIGN)
    sidecar_of(jpeg).write_bytes(FOREIGN)
    (embed if place == "embed" else write_sidecar)(jpeg, ["animal|dog", "boat"])
    file = jpeg if place == "embed" else sidecar_of(jpeg)
    write_tags(file, "-XMP-dc:Subject+=beach", "-XMP-digiKam:TagsList+=beach", "-XMP-dc:Title=Sea")
    assert undo(jpeg) == ["animal|dog", "boat"]
    after = exiftool(file, "XMP:all", "IPTC:all")
    assert after["XMP-dc:Subject"] == after["XMP-digiKam:TagsList"] == ["family", "beach"]
    assert (after["XMP-lr:HierarchicalSubject"], after["XMP-dc:Title"]) == ("family", "Sea")
    assert "mltta" not in str(after)
    assert not any(
        "IPTC" in key and "Keyword" in key and "family" not in str(own) for key, own in after.items()
    )


@needs_exiftool
def test_if_only_other_parts_changed_undo_still_restores_the_metadata(jpeg):
    with_xmp(jpeg, FOREIGN)
    embed(jpeg, ["dog"])
    write_tags(jpeg, "-Comment=later")
    undo(jpeg)
    assert Jpeg.of(jpeg.read_bytes()).notes(XMP) == FOREIGN
    assert exiftool(jpeg, "Comment") == {"File:Comment": "later"}


def test_keywords_of_earlier_versions_are_removed(jpeg):
    old = FOREIGN.replace(b"</rdf:Bag>", b"<rdf:li>dog</rdf:li></rdf:Bag>").replace(
        b"</rdf:Description>",
        b'<m:addedSubject xmlns:m="urn:mltta:keywords:1.0/"><rdf:Bag><rdf:li>dog</rdf:li></rdf:Bag></m:addedSubject>'
        b"</rdf:Description>",
    )
    with_xmp(jpeg, old)
    assert undo(jpeg) == ["dog"]
    assert Jpeg.of(jpeg.read_bytes()).notes(XMP) == FOREIGN


def test_the_users_keywords_are_read_without_ours_also_from_other_formats(jpeg, tmp_path):
    with_xmp(jpeg, FOREIGN)
    embed(jpeg, ["dog"])
    write_sidecar(jpeg, ["boat"])
    assert users_keywords(jpeg) == ["family"]
    other = tmp_path / "b.heic"
    other.write_bytes(b"\0ftypheic" + FOREIGN + b"\0rest")
    assert users_keywords(other) == ["family"]
    write_sidecar(other, ["boat"])
    held = Packet(sidecar_of(other).read_bytes(), "x")
    assert held.subjects == held.items("tags") == ["family", "boat"], "what the sidecar would hide is in it"
    assert held.ours() == ["boat"]
