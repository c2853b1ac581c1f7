"""`mltta export`, `search`, `similar`, `duplicates` and `teach`, run as a user runs them on real photos."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.test_cli import mltta

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "examples" / "photos").glob("*.jpg"))
LABELS = "cat, dog, bee, beach, person, car, flower"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A library of the sample photos, which no test changes, and the photos."""
    folder = tmp_path_factory.mktemp("samples")
    photos = folder / "photos"
    photos.mkdir()
    for sample in SAMPLES:
        small = Image.open(sample)
        small.thumbnail((320, 320))
        small.save(photos / sample.name)
    mltta("tag", photos, "--library", folder / "p.mltta", "-l", LABELS)
    return folder


@pytest.fixture
def library(made, tmp_path):
    return Path(shutil.copytree(made / "p.mltta", tmp_path / "p.mltta"))


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as held:
        return list(csv.DictReader(held))


def labels_of(file: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows(file):
        found.setdefault(Path(row["image"]).name, set()).update({row["label"]} - {""})
    return found


def test_a_library_is_exported_as_tagging_would_write_it(made, library, tmp_path):
    mltta("export", library, "-o", tmp_path / "a.csv", "-o", tmp_path / "a.json")
    mltta("tag", made / "photos", "-l", LABELS, "-o", tmp_path / "b.csv")
    exported, tagged = (
        {(Path(r["image"]).name, r["label"]): r["score"] for r in rows(tmp_path / f)}
        for f in ("a.csv", "b.csv")
    )
    both = exported.keys() & tagged.keys()
    assert len(both) > 0.8 * len(tagged)
    assert all(abs(float(exported[k]) - float(tagged[k])) <= 0.02 for k in both if k[1])
    assert {one["image"] for one in json.loads((tmp_path / "a.json").read_text())} == {
        r["image"] for r in rows(tmp_path / "a.csv")
    }


def test_other_labels_need_no_photos(made, library, tmp_path):
    hidden = (made / "photos").rename(made / "hidden")
    try:
        mltta("export", library, "-l", "cat, sofa", "-o", tmp_path / "x.csv", "--threshold", "0")
    finally:
        hidden.rename(made / "photos")
    assert {row["label"] for row in rows(tmp_path / "x.csv")} == {"cat", "sofa"}
    assert len(rows(tmp_path / "x.csv")) == 2 * len(SAMPLES)


def test_export_replaces_files_only_if_told(library, tmp_path):
    (tmp_path / "x.csv").write_text("mine")
    assert "already exists" in mltta("export", library, "-o", tmp_path / "x.csv", check=2).stderr
    assert (tmp_path / "x.csv").read_text() == "mine"
    mltta("export", library, "-o", tmp_path / "x.csv", "--overwrite")
    assert rows(tmp_path / "x.csv")


def test_export_writes_pictures_keywords_and_copies(made, library, tmp_path):
    more = [
        "--keywords",
        "sidecar",
        "--annotate",
        tmp_path / "bars",
        "--copy-to",
        tmp_path / "by" / "{label}",
    ]
    done = mltta("export", library, *more)
    assert "keywords written" in done.stderr
    assert len(list((tmp_path / "bars").rglob("*.png"))) == len(SAMPLES)
    assert (tmp_path / "by" / "cat" / "cat.jpg").is_file()
    assert "cat" in (made / "photos" / "cat.jpg.xmp").read_text()
    for file in (made / "photos").glob("*.xmp"):
        file.unlink()


def test_a_journal_is_narrowed_but_not_widened(made, tmp_path):
    mltta("tag", made / "photos", "-l", LABELS, "-o", tmp_path / "t.csv")
    mltta("export", tmp_path / "t.csv", "-o", tmp_path / "same.csv")
    assert (tmp_path / "same.csv").read_bytes() == (tmp_path / "t.csv").read_bytes()
    mltta("export", tmp_path / "t.csv", "-o", tmp_path / "few.csv", "--threshold", "0.6", "--top-k", "1")
    some = [float(row["score"]) for row in rows(tmp_path / "few.csv") if row["score"]]
    assert some
    assert min(some) >= 0.6
    lower = mltta("export", tmp_path / "t.csv", "--threshold", "0.1", check=2)
    assert "contains only the labels shown" in lower.stderr
    assert "needs a library" in mltta("export", tmp_path / "t.csv", "-l", "cat", check=2).stderr
    assert "has no journal" in mltta("export", tmp_path / "few.csv", check=2).stderr


def test_search_finds_by_text_labels_folder_and_date(made, library, tmp_path):
    first = mltta("search", library, "a cat", "-n", "1", "-f", "paths").stdout.strip()
    assert Path(first).name == "cat.jpg"
    both = mltta("search", library, "--has", "cat or dog", "-f", "json")
    found = json.loads(both.stdout)
    assert found
    assert all({"cat", "dog"} & {*one["present"]} for one in found)
    assert [one["match"] for one in found] == sorted((one["match"] for one in found), reverse=True)
    assert mltta("search", library, "--folder", tmp_path).stdout == ""
    assert mltta("search", library, "--until", "1990").stderr == "No photos match\n"
    assert len(mltta("search", library, "--since", "1990", "-n", "99", "-f", "paths").stdout.split()) == len(
        SAMPLES
    )
    assert "give a date" in mltta("search", library, "--since", "yesterday", check=2).stderr
    mltta("search", library, "a cat", "-o", tmp_path / "found.html", "-n", "2")
    assert "cat.jpg" in (tmp_path / "found.html").read_text(encoding="utf-8")


def test_similar_photos_of_one_inside_and_one_outside(made, library, tmp_path):
    inside = mltta("similar", library, made / "photos" / "cat.jpg", "-n", "3", "-f", "paths").stdout.split()
    assert len(inside) == 3
    assert "cat.jpg" not in [Path(one).name for one in inside]
    Image.open(made / "photos" / "cat.jpg").resize((200, 180)).save(tmp_path / "new.png")
    outside = mltta("similar", library, tmp_path / "new.png", "-n", "1").stdout
    assert outside.strip().endswith("cat.jpg")
    assert float(outside.split()[0]) > 0.9


def test_duplicates_are_found_and_kept(made, library, tmp_path):
    copies = made / "photos" / "copies"
    copies.mkdir()
    image = Image.open(made / "photos" / "bee.jpg")
    image.save(copies / "small.jpg", quality=40)
    shutil.copy(made / "photos" / "cat.jpg", copies / "same.jpg")
    try:
        mltta("tag", made / "photos", "--library", library, "-l", LABELS)
        done = mltta("duplicates", library, "-f", "json")
    finally:
        shutil.rmtree(copies)
    groups = [sorted(Path(one).name for one in group) for group in json.loads(done.stdout)]
    assert sorted(groups) == [["bee.jpg", "small.jpg"], ["cat.jpg", "same.jpg"]]
    assert "2 near duplicates of 2 photos" in done.stderr


def test_a_label_is_taught_corrected_and_forgotten(made, library, tmp_path):
    photos, mine = made / "photos", tmp_path / "mine.mltta"
    names = [sample.name for sample in SAMPLES]
    taught, other = photos / "cat.jpg", photos / names[-1]
    told = mltta("teach", library, "--label", "our mochi", taught, "--not", other, "-o", mine)
    assert "our mochi: 1 photos show it, 1 do not" in told.stderr
    mltta("export", library, "-l", mine, "-o", tmp_path / "t.csv")
    assert [name for name, labels in labels_of(tmp_path / "t.csv").items() if "our mochi" in labels] == [
        "cat.jpg"
    ]
    # the file works without the library, on a photo that it has not seen
    Image.open(taught).rotate(3, expand=False).save(tmp_path / "again.png")
    alone = json.loads(
        mltta("tag", tmp_path / "again.png", "-l", mine, "-f", "json", "--threshold", "0").stdout
    )
    scores = {one["label"]: one["score"] for one in alone[0]["labels"]}
    assert scores["our mochi"] > 0.3
    (tmp_path / "fix.csv").write_text(f"photo,label,answer\n{taught},our mochi,no\n{other},our mochi,yes\n")
    mltta("teach", library, "--corrections", tmp_path / "fix.csv", "-o", mine)
    mltta("export", library, "-l", mine, "-o", tmp_path / "u.csv")
    now = labels_of(tmp_path / "u.csv")
    assert "our mochi" in now[other.name]
    assert "our mochi" not in now["cat.jpg"]
    assert "no file was written" in mltta("teach", library, "--forget", "our mochi").stderr
    assert "no examples" in mltta("teach", library, "--forget", "our mochi", check=2).stderr


def test_what_teach_refuses(made, library, tmp_path):
    photo = made / "photos" / "cat.jpg"
    assert "give --label together" in mltta("teach", library, photo, check=2).stderr
    (tmp_path / "bad.csv").write_text("photo,label,answer\ncat.jpg,cat,perhaps\n")
    assert "bad.csv, line 2" in mltta("teach", library, "--corrections", tmp_path / "bad.csv", check=2).stderr
    (tmp_path / "letter.txt").write_text("dear")
    mltta("teach", library, "--label", "cat", photo, "-o", tmp_path / "letter.mltta")
    damaged = bytearray((tmp_path / "letter.mltta").read_bytes())
    damaged[-3] ^= 1
    (tmp_path / "letter.mltta").write_bytes(damaged)
    assert "is damaged" in mltta("tag", photo, "-l", tmp_path / "letter.mltta", check=2).stderr
    assert (
        "is damaged"
        in mltta("teach", library, "--label", "cat", photo, "-o", tmp_path / "letter.mltta", check=2).stderr
    )
    mltta("teach", library, "--label", "cat", photo, "-o", tmp_path / "ok.mltta")
    refused = mltta("tag", photo, "-l", tmp_path / "ok.mltta", "--set", "effort=fast", check=2)
    assert "the views differ" in refused.stderr
    assert (
        "need calibrated scores"
        in mltta("tag", photo, "-l", tmp_path / "ok.mltta", "--method", "clip", check=2).stderr
    )
