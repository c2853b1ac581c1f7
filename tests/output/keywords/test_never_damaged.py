"""Photos are never damaged: unusual ones, previews that offsets locate, owners, links, attributes, and kills."""

from __future__ import annotations

import os
import random
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mltta.errors import MlttaError
from mltta.output.keywords.jpeg import Jpeg
from mltta.output.keywords.write import embed, sidecar_of, undo, write_sidecar
from tests.output.keywords.exiftool import needs_exiftool, read_all
from tests.output.keywords.unusual import exif, image, pixels, segment, unusual

LABELS = ["animal|dog", "Hängebrücke"]
#: groups and tags that describe the file and not its metadata, or what was added
OURS = ("SourceFile", "System:", "File:", "ExifTool:", "Composite:", "XMP-mltta:", "XMP-digiKam:", "XMP-lr:")
LISTS = ("XMP-dc:Subject", "IPTC:Keywords", "IPTC:CodedCharacterSet", "IPTC:ApplicationRecordVersion")
DIGESTS = ("Photoshop:IPTCDigest",)


@pytest.fixture
def jpeg(tmp_path) -> Path:
    file = tmp_path / "a.jpg"
    file.write_bytes(image("baseline", 0))
    return file


def notes(tags: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in tags.items() if not key.startswith((*OURS, *LISTS, *DIGESTS))}


@needs_exiftool
def test_500_unusual_jpegs_keep_pixels_and_metadata_and_undo_restores_them(tmp_path):
    before = {tmp_path / name: content for name, content in unusual(500)}
    for file, content in before.items():
        file.write_bytes(content)
    read = read_all(list(before), "-a", "-u")
    refused, written = {}, []
    for file in before:
        try:
            assert embed(file, LABELS)
            written.append(file)
        except MlttaError as error:
            refused[file] = str(error)
    assert len(written) > 300, "most are written"
    after = read_all(written, "-a", "-u")
    for file in written:
        content = file.read_bytes()
        assert Jpeg.of(content).rest == Jpeg.of(before[file]).rest
        assert pixels(content) == pixels(before[file])
        was, now = read[str(file)], after[str(file)]
        assert notes(was) == notes(now), file.name
        for key in LISTS[:2]:
            there, found = (
                [own] if isinstance(own, str) else own for own in (was.get(key, []), now.get(key, []))
            )
            assert [word for word in there if word and word not in found] == [], (file.name, key)
        assert {"animal", "dog", "Hängebrücke"} <= set(now["XMP-dc:Subject"])
        assert {"animal|dog", "Hängebrücke"} <= set(now["XMP-lr:HierarchicalSubject"])
        assert {"animal/dog", "Hängebrücke"} <= set(now["XMP-digiKam:TagsList"])
        assert undo(file) == LABELS
    for file, content in before.items():
        assert file.read_bytes() == content, file.name
    for why in refused.values():
        assert "keywords cannot be embedded: " in why or "unusual form" in why


def with_preview(order: str, *, located: bool, maker_note: bool = False) -> bytes:
    """Return a JPEG followed by a preview that its EXIF data locates or not."""
    held, preview = image("baseline", 0), image("gray", 1)
    notes = exif(order, thumbnail=True, maker_note=maker_note)
    place = len(held) + len(notes) - 12
    mark = f"{order}I"
    if located:
        old = struct.pack(f"{order}HHI", 0x0201, 4, 1)
        at = notes.index(old) + 8
        notes = notes[:at] + struct.pack(mark, place) + notes[at + 4 :]
    return held[:2] + notes + held[2:] + preview


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_preview_that_exif_locates_by_its_offset_is_not_moved(jpeg, order):
    jpeg.write_bytes(before := with_preview(order, located=True))
    with pytest.raises(MlttaError, match=r"locates a preview after the image, .*use --keywords sidecar"):
        embed(jpeg, ["dog"])
    assert jpeg.read_bytes() == before
    assert write_sidecar(jpeg, ["dog"])
    jpeg.write_bytes(with_preview(order, located=False))
    assert embed(jpeg, ["dog"]), "one that nothing locates may move"


def test_a_picture_after_the_image_that_a_maker_note_may_locate_is_not_moved(jpeg):
    jpeg.write_bytes(with_preview("<", located=False, maker_note=True))
    with pytest.raises(MlttaError, match="locates a preview"):
        embed(jpeg, ["dog"])
    jpeg.write_bytes(image("baseline", 0)[:2] + exif(maker_note=True) + image("baseline", 0)[2:])
    assert embed(jpeg, ["dog"]), "without such a picture there is nothing to locate"


def test_keywords_in_an_extension_of_the_xmp_are_refused(tmp_path):
    for name, content in unusual(60):
        if "extended keywords, nothing.jpg" in name:
            (tmp_path / "a.jpg").write_bytes(content)
            with pytest.raises(MlttaError, match="extension"):
                embed(tmp_path / "a.jpg", ["dog"])
            return
    raise AssertionError("there is one")


@pytest.mark.parametrize("beside", [False, True])
def test_a_file_with_several_names_is_refused_with_a_hint(jpeg, tmp_path, beside):
    file = jpeg
    if beside:
        write_sidecar(jpeg, ["cat"])
        file = sidecar_of(jpeg)
    os.link(file, tmp_path / "other")
    before = file.read_bytes()
    with pytest.raises(MlttaError, match="2 hard links"):
        (write_sidecar if beside else embed)(jpeg, ["dog"])
    assert file.read_bytes() == before
    assert file.stat().st_nlink == 2


def test_a_read_only_file_is_refused_with_a_hint_also_for_root(jpeg):
    jpeg.chmod(0o444)
    before = jpeg.read_bytes()
    with pytest.raises(MlttaError, match=r"read-only; .*--keywords sidecar"):
        embed(jpeg, ["dog"])
    assert (jpeg.read_bytes(), stat.S_IMODE(jpeg.stat().st_mode)) == (before, 0o444)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_root_keeps_the_owner_of_a_file(jpeg):
    os.chown(jpeg, 12345, 23456)
    jpeg.chmod(0o640)
    write_sidecar(jpeg, ["cat"])
    os.chown(sidecar_of(jpeg), 12345, 23456)
    embed(jpeg, ["dog"])
    write_sidecar(jpeg, ["dog"])
    for file in (jpeg, sidecar_of(jpeg)):
        assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)
    assert stat.S_IMODE(jpeg.stat().st_mode) == 0o640


def test_an_owner_that_cannot_be_restored_is_refused_with_a_hint(jpeg, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    stats = Path.stat

    def another(self: Path, **options: bool) -> os.stat_result:
        seen = stats(self, **options)
        return os.stat_result([*seen[:4], 4321, *seen[5:]]) if ".part-" in self.name else seen

    monkeypatch.setattr(Path, "stat", another)
    before = jpeg.read_bytes()
    with pytest.raises(MlttaError, match="belongs to another user"):
        embed(jpeg, ["dog"])
    monkeypatch.undo()
    assert jpeg.read_bytes() == before
    assert os.listdir(jpeg.parent) == ["a.jpg"]


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no extended attributes")
def test_times_and_extended_attributes_stay(jpeg):
    try:
        os.setxattr(jpeg, "user.rating", b"5")
    except OSError as error:
        pytest.skip(f"this file system has no extended attributes: {error}")
    os.utime(jpeg, ns=(10**18 + 1, 10**18 + 7))
    embed(jpeg, ["dog"])
    assert os.getxattr(jpeg, "user.rating") == b"5"
    assert jpeg.stat().st_mtime_ns == 10**18 + 7


def test_a_change_by_another_program_at_the_same_time_is_not_overwritten(jpeg, monkeypatch):
    import shutil

    copy = shutil.copystat

    def meanwhile(source: Path, target: Path) -> None:
        copy(source, target)
        jpeg.write_bytes(image("gray", 3))

    monkeypatch.setattr(shutil, "copystat", meanwhile)
    with pytest.raises(MlttaError, match="at the same time"):
        embed(jpeg, ["dog"])
    assert jpeg.read_bytes() == image("gray", 3)


ENDLESS = """
import sys
from itertools import cycle
from pathlib import Path
from mltta.output.keywords.write import embed, undo
print("ready", flush=True)
for number in cycle((0, 1)):
    for file in map(Path, sys.argv[1:]):
        undo(file) if number else embed(file, ["animal|dog", "boat"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")
def test_killed_a_hundred_times_there_is_never_a_partial_file(tmp_path):
    files = [tmp_path / f"{number}.jpg" for number in range(8)]
    whole: dict[Path, set[bytes]] = {}
    for number, file in enumerate(files):
        before = image("baseline", number)
        before = before[:2] + exif() + segment(0xFE, bytes(5000 * number)) + before[2:]
        file.write_bytes(before)
        embed(file, ["animal|dog", "boat"])
        whole[file] = {before, file.read_bytes()}
    r, seen = random.Random(9), set()
    for _ in range(100):
        line = [sys.executable, "-c", ENDLESS, *map(str, files)]
        child = subprocess.Popen(line, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(r.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for file in files:
            content = file.read_bytes()
            assert content in whole[file]
            seen.add((file, content))
    assert len(seen) > len(files), "kills met files of both kinds"
    for file in files:
        undo(file)
        embed(file, ["x"])
        undo(file)
        assert file.read_bytes() in whole[file]
    assert sorted(tmp_path.iterdir()) == files, "what a kill left is removed by the next write"
