"""Labeled photos are read from git, filtered, merged, checked and written the same way every time."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tests.training.clones import clone, picture, saved, source
from training import gather, repository, scans, selection, shards
from training.sources import Source


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
                    assert (image.format, min(image.size)) == ("JPEG", 100)
                    found[facts["photo"]] = facts
    assert sorted(found) == sorted(f"{p.blob}.jpg" for p in photos if not p.fault)
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
