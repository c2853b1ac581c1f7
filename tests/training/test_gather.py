"""Labeled photos are read from git, filtered, merged, checked and written the same way every time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from training import filters, gather, hashes, meanings, repository, scans, selection, shards, sources
from training.repository import Entry
from training.sources import Source

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


def picture(seed: int, width: int = 132, height: int = 112) -> Image.Image:
    """Soft patches of color with noise, another for each seed."""
    rng = np.random.default_rng(seed)
    patches = Image.fromarray(rng.integers(30, 226, (8, 9, 3), dtype=np.uint8))
    soft = np.asarray(patches.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    return Image.fromarray((soft + rng.integers(-6, 7, soft.shape)).clip(0, 255).astype(np.uint8))


def saved(image: Image.Image, kind: str = "JPEG", quality: int = 92) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=quality)
    return buffer.getvalue()


def clone(folder: Path, name: str, files: dict[str, bytes], bare: bool = True) -> str:
    """A git directory with some files in one commit; returns the commit."""
    work = folder.parent / "work" / name.replace("/", "+")
    for path, data in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "photos"]):
        subprocess.run([*GIT, *command], cwd=work, check=True)
    target = folder / name.replace("/", "+")
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", "clone", "-q", *(["--bare"] if bare else []), str(work), str(target)], check=True)
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=work, capture_output=True, check=True, text=True)
    return found.stdout.strip()


def source(repository: str = "o/r", photos: dict[str, str] | None = None, **more: object) -> Source:
    line = {"repository": repository, "commit": "0" * 40, "license": "MIT", "group": "objects"}
    return Source.of({**line, "absent": "none", "photos": photos or {}, **more})


# hashes


def test_the_hash_is_whether_each_cell_is_darker_than_its_right_neighbor():
    image = picture(1)
    grey = image.convert("L").resize((9, 8), Image.Resampling.BOX)
    bits = "".join(
        "1" if grey.getpixel((x, y)) < grey.getpixel((x + 1, y)) else "0" for y in range(8) for x in range(8)
    )
    assert hashes.difference_hash(image) == int(bits, 2)


def test_a_copy_has_nearly_the_same_hash_and_other_pictures_have_not():
    image, small = picture(1, 400, 340), picture(1, 400, 340).resize((160, 136))
    again = Image.open(io.BytesIO(saved(small, quality=60)))
    own, copy, other = (hashes.difference_hash(i) for i in (image, again, picture(2)))
    assert bin(own ^ copy).count("1") <= selection.SAME
    assert bin(own ^ other).count("1") > 10
    assert hashes.alike(hashes.thumbnail(image), hashes.thumbnail(again))
    assert not hashes.alike(hashes.thumbnail(image), hashes.thumbnail(picture(2)))


@pytest.mark.parametrize("distance", [0, 2, 6])
def test_pairs_are_those_of_all_comparisons(distance: int):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 2**63, 60, dtype=np.uint64) * np.uint64(2)
    flips = [sum(1 << int(b) for b in rng.choice(64, rng.integers(0, 9), replace=False)) for _ in range(120)]
    values = np.concatenate([base, base[rng.integers(0, 60, 120)] ^ np.array(flips, np.uint64)])
    expected = [
        [i, j, bin(int(values[i]) ^ int(values[j])).count("1")]
        for i in range(len(values)) for j in range(i + 1, len(values))
        if bin(int(values[i]) ^ int(values[j])).count("1") <= distance
    ]  # fmt: skip
    assert len(expected) > 5
    assert hashes.pairs(values, distance).tolist() == expected
    near = hashes.nearest(values[:60], values, distance).tolist()
    assert [row for row in near if row[0] < row[1]] == [row for row in expected if row[0] < 60]


def test_groups_are_the_connected_parts():
    links = [(4, 1), (7, 4), (2, 3), (9, 8), (8, 3)]
    reached = []
    for start in range(10):
        seen = {start}
        while more := {b for a, b in [*links, *((b, a) for a, b in links)] if a in seen} - seen:
            seen |= more
        reached.append(min(seen))
    assert hashes.groups(10, links) == reached


# filters


def test_filters_name_what_is_wrong():
    photo = picture(3, 300, 240)
    drawing = Image.new("RGB", (300, 240), "white")
    for x in range(5, 300, 12):
        ImageDraw.Draw(drawing).line((x, 10, x, 230), fill="black", width=4)
    agency = photo.copy()
    ImageDraw.Draw(agency).rectangle((0, 216, 300, 240), fill="black")
    ImageDraw.Draw(agency).text((100, 222), "example agency", fill="white")
    framed = agency.copy()
    ImageDraw.Draw(framed).rectangle((0, 0, 300, 8), fill="black")
    halves = Image.new("RGB", (300, 240), "white")
    checks = (np.indices((240, 145)).sum(0) // 12 % 2 * 200 + 20).astype(np.uint8)
    tiles = Image.merge("RGB", [Image.fromarray(checks), *[Image.fromarray(checks // 2)] * 2])
    halves.paste(tiles, (0, 0))
    halves.paste(tiles, (155, 0))
    clear = photo.convert("RGBA")
    clear.putpixel((0, 0), (0, 0, 0, 0))
    assert filters.fault(photo) is None
    assert filters.fault(photo.resize((120, 95))) == "tiny"
    assert filters.fault(photo, (1000, 300)) == "elongated"
    assert filters.fault(clear) == "transparent"
    assert filters.fault(photo.convert("P")) == "palette"
    assert filters.fault(photo.convert("L")) == "grey"
    assert filters.fault(drawing) == "line drawing"
    assert filters.fault(Image.new("RGB", (300, 240), (90, 120, 200))) == "blank"
    assert filters.fault(agency) == "banner"
    assert filters.fault(framed) is None
    assert filters.fault(halves) == "collage"


def test_a_product_photo_without_colors_is_kept():
    product = Image.new("L", (300, 240), 255)
    product.paste(picture(4, 150, 150).convert("L"), (70, 40))
    assert filters.fault(product) is None


# sources and meanings


def test_the_manifest_is_small_and_complete():
    manifest = sources.read()
    assert sources.MANIFEST.stat().st_size < 300_000
    assert len({s.repository for s in manifest}) == len(manifest) > 60
    for own in manifest:
        assert len(own.commit) == 40, own.repository
        assert own.license, own.repository
        assert own.photos, own.repository
        assert all(t.strip() for terms in own.photos.values() for t in terms.split("|")), own.repository


def test_terms_come_from_the_longest_folder_a_pattern_or_a_file():
    own = source(photos={"a": "animal", "a/b": "bird|animal", "rooms/*_bed.jpg": "bedroom", "x.png": "axe"})
    paths = [
        "a/1.jpg",
        "a/b/2.JPG",
        "a/b/c/3.png",
        "a/b/notes.txt",
        "rooms/7_bed.jpg",
        "rooms/7_bath.jpg",
        "x.png",
    ]
    assert own.terms([Entry(path, "", 0) for path in paths]) == {
        "a/1.jpg": ("animal",), "a/b/2.JPG": ("bird", "animal"), "a/b/c/3.png": ("bird", "animal"),
        "rooms/7_bed.jpg": ("bedroom",), "x.png": ("axe",),
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


# the whole


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Source], Path, Path]:
    """Clones of three repositories, a folder of pictures kept aside, and a manifest that names four."""
    folder = tmp_path_factory.mktemp("world")
    clones, aside = folder / "clones", folder / "aside"
    aside.mkdir()
    for seed in range(200, 205):
        (aside / f"kept{seed}.jpg").write_bytes(saved(picture(seed)))
    zoo = {f"zoo/{kind}/{i}.jpg": saved(picture(10 * n + i)) for n, kind in enumerate("cd") for i in range(8)}
    zoo["zoo/c/again.jpg"] = zoo["zoo/c/0.jpg"]
    zoo["zoo/c/larger.jpg"] = saved(picture(1).resize((264, 224)))
    zoo["zoo/d/of-c.jpg"] = saved(picture(2), quality=80)
    zoo["zoo/d/tiny.jpg"] = saved(picture(90, 60, 50))
    zoo["zoo/d/broken.jpg"] = b"not a picture"
    zoo["zoo/d/renamed.jpg"] = saved(picture(200).resize((200, 170)), quality=70)
    many = {f"things/{i}.jpg": saved(picture(300 + i)) for i in range(30)}
    many["other/shared.jpg"] = saved(picture(5).resize((120, 102)))
    copied = {f"{i}.jpg": saved(picture(400 + i)) for i in range(4)}
    copied |= {f"kept{seed}.png": saved(picture(seed), "PNG") for seed in (201, 202, 203)}
    commits = [
        clone(clones, "a/zoo", zoo),
        clone(clones, "b/many", many, bare=False),
        clone(clones, "c/old", copied),
    ]
    manifest = [
        source("a/zoo", {"zoo/c": "cat|animal", "zoo/d": "dog|animal"}, commit=commits[0], absent="classes"),
        source("b/many", {"things": "thing", "other": "thing"}, cap=24, commit=commits[1]),
        source("c/old", {".": "horse"}),  # the clone has another commit
        source("d/missing", {"x": "y"}),
    ]
    return manifest, clones, aside


def run(world: tuple[list[Source], Path, Path], out: Path, each: scans.Map = map, **more: int):
    manifest, clones, aside = world
    return gather.gather(manifest, clones, [aside], out, each, piece=more.pop("piece", 60_000), **more)


def backwards(function, items):
    """A `map` that works from the end."""
    return list(reversed([function(item) for item in reversed(list(items))]))


def written(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(out.iterdir()) if p.is_file()}


def test_each_photo_is_kept_or_has_a_reason(world, tmp_path):
    result, photos = run(world, tmp_path)
    faults = {f"{p.source}/{p.path}": p.fault for p in photos if p.fault}
    over = [name for name, fault in faults.items() if fault == "over the limit"]
    assert len(over) == 30 - 24
    assert {name: fault for name, fault in faults.items() if name not in over} == {
        "a/zoo/zoo/c/again.jpg": "repeated", "a/zoo/zoo/c/1.jpg": "nearly repeated",
        "a/zoo/zoo/c/2.jpg": "two classes", "a/zoo/zoo/d/of-c.jpg": "two classes",
        "a/zoo/zoo/d/tiny.jpg": "tiny", "a/zoo/zoo/d/broken.jpg": "unreadable",
        "a/zoo/zoo/d/renamed.jpg": "kept aside", "b/many/other/shared.jpg": "nearly repeated",
        **{f"c/old/{i}.jpg": "source kept aside" for i in range(4)},
        **{f"c/old/kept{i}.png": "kept aside" for i in (201, 202, 203)},
    }  # fmt: skip
    assert result["missing"] == ["d/missing"]
    assert result["total"]["found"] == len(photos) == sum(result["total"].values()) - len(photos)
    assert "| c/old | 7 | 0 | 0 |" in gather.table(result)
    hits = json.loads((tmp_path / "report.json").read_text())["hits"]
    assert {hit["like"] for hit in hits} == {f"kept{i}.jpg" for i in range(200, 204)}


def test_shards_read_back_and_match_their_checksums(world, tmp_path):
    result, photos = run(world, tmp_path, short=100)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["parts"]) == 2 * result["shards"] > 2
    found = {}
    for name, expected in manifest["parts"].items():
        data = (tmp_path / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == expected
        assert len(data) <= 60_000
        if name.endswith(".tar"):
            lines = (tmp_path / name.replace(".tar", ".jsonl")).read_text().splitlines()
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                for facts, member in zip(map(json.loads, lines), tar, strict=True):
                    assert facts["photo"] == member.name
                    image = Image.open(tar.extractfile(member))
                    assert (image.format, min(image.size)) == ("WEBP", 100)
                    found[facts["photo"]] = facts
    assert sorted(found) == sorted(f"{p.blob}.webp" for p in photos if not p.fault)
    both = next(facts for facts in found.values() if facts["also"])
    assert {both["source"], *both["also"]} == {"a/zoo", "b/many"}
    assert {"cat", "animal", "thing"} <= set(both["labels"])
    about = {row["source"]: row for row in json.loads((tmp_path / "sources.json").read_text())}
    assert {"cat", "dog"} <= set(about["a/zoo"]["annotates"])
    assert about["b/many"]["annotates"] == []


def test_similar_photos_are_held_out_together_from_each_source(world, tmp_path):
    _, photos = run(world, tmp_path)
    kept = [p for p in photos if not p.fault]
    for name in ("a/zoo", "b/many"):
        own = [p.held_out for p in kept if p.source == name]
        assert 0.05 <= sum(own) / len(own) <= 0.2
    series = [scans.Photo("s/s", f"{i:040x}", f"{i}", ["x"], hash=0x0F0F << i // 4 * 20, thumbnail="80" * 48)
              for i in range(12)]  # fmt: skip
    for i, photo in enumerate(series):
        photo.hash ^= i % 4  # of each four
    selection.hold_out(series, 0.3)
    assert {photo.group for photo in series} == {f"{i:040x}" for i in (0, 4, 8)}
    assert all(len({p.held_out for p in series[i : i + 4]}) == 1 for i in (0, 4, 8))
    assert sum(p.held_out for p in series) == 4


def test_limits_count_labels_in_each_source_and_in_all():
    manifest = {"a/a": source("a/a"), "b/b": source("b/b"), "c/c": source("c/c", absent="all")}
    photos = [scans.Photo(name, f"{i:02}{name}", str(i), [term], fault=None)
              for name in manifest for term in ("cat", "kitty", "dog") for i in range(5)]  # fmt: skip
    selection.cap(photos, manifest, per_source=4, per_label=6)
    kept = [p for p in photos if p.fault is None]
    count = {
        (p.source, t): sum((q.source, q.terms) == (p.source, [t]) for q in kept)
        for p in kept
        for t in p.terms
    }
    assert sum(n for (s, t), n in count.items() if s != "c/c" and t != "dog") == 6  # a kitty is a cat
    assert max(n for (s, _), n in count.items() if s == "a/a") <= 4
    assert {n for (s, _), n in count.items() if s == "c/c"} == {5}
    assert {p.blob[:2] for p in kept if p.source == "a/a" and p.terms == ["dog"]} == {"00", "01", "02"}
    assert {p.fault for p in photos} == {None, "over the limit"}


def test_the_output_depends_neither_on_workers_nor_on_order(world, tmp_path):
    run(world, tmp_path / "one")
    run(world, tmp_path / "back", backwards)
    with ProcessPoolExecutor(2) as pool:
        run(world, tmp_path / "two", pool.map)
    assert written(tmp_path / "one") == written(tmp_path / "back") == written(tmp_path / "two")


def test_a_run_resumes(world, tmp_path, monkeypatch):
    run(world, tmp_path / "whole")
    run(world, tmp_path / "cut")
    manifest = tmp_path / "cut" / "manifest.json"
    done = json.loads(manifest.read_text())
    names = sorted(done["parts"])
    for name in names[-2:]:
        del done["parts"][name]
        (tmp_path / "cut" / name).unlink()
    rest = done["photos"].pop()
    manifest.write_text(json.dumps(done))
    encoded = []
    monkeypatch.setattr(
        shards, "encode", lambda data, short, own=shards.encode: encoded.append(1) or own(data, short)
    )
    monkeypatch.setattr(scans, "examine", lambda *a: pytest.fail("scanned again"))
    run(world, tmp_path / "cut")
    assert len(encoded) == rest
    assert written(tmp_path / "cut") == written(tmp_path / "whole")


def test_other_settings_start_again(world, tmp_path):
    run(world, tmp_path / "out", short=100)
    run(world, tmp_path / "out")
    run(world, tmp_path / "new")
    assert written(tmp_path / "out") == written(tmp_path / "new")


def test_the_command_prints_the_counts(world, tmp_path, capsys):
    manifest, clones, aside = world
    path = tmp_path / "sources.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(own.__dict__) + "\n" for own in manifest)
    command = ["--repositories", clones, "--check", aside, "--out", tmp_path / "out", "--manifest", path]
    gather.main([*map(str, command), "--sheets", "12", "--only", "a/zoo", "d/missing"])
    out = capsys.readouterr().out
    assert "1 of 2 repositories are missing" in out
    assert "| a/zoo | 22 |" in out
    assert Image.open(tmp_path / "out/sheets/kept.png").size == (1440, 120)
    with pytest.raises(SystemExit):
        gather.main(["--repositories", "x", "--check", str(tmp_path / "no"), "--out", "y"])


def test_files_that_a_clone_lacks_are_reported(world, tmp_path):
    _, clones, _ = world
    directory = repository.find(clones, "b/many")
    assert directory is not None
    assert directory.name == ".git"
    assert dict(repository.read(directory, ["0" * 40])) == {"0" * 40: None}
    photo = scans.Photo("b/many", "0" * 40, "x.jpg", ["thing"])
    assert [p.fault for p in scans.examine(directory, None, [photo])] == ["missing"]
