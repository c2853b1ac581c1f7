"""`make demo`: its label list fits the sample photographs, and its page shows everything, wherever the folder is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mltta
from mltta.labels import LabelSet
from tests.serve.browser import CHROMIUM, chromium

ROOT = Path(__file__).parents[1]
PHOTOS = sorted((ROOT / "examples" / "photos").glob("*.jpg"))
WHY = r"No label scored at least 0\.30\. Highest: [\w ]+ 0\.[012]\d"


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, str]:
    """The folder that `make demo` writes, moved elsewhere, and what it prints."""
    home = tmp_path_factory.mktemp("clone")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, home)
    (home / "examples").symlink_to(ROOT / "examples")
    program = home / ".venv-light" / "bin" / "mltta"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mltta "$@"\n')
    program.chmod(0o755)
    (home / ".venv-light" / ".ready").touch()
    env = os.environ | {"PYTHONPATH": str(Path(mltta.__file__).parents[1])}
    done = subprocess.run(
        ["make", "--no-print-directory", "demo"],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    moved = tmp_path_factory.mktemp("elsewhere") / "shared"
    shutil.move(home / "demo", moved)
    return moved, done.stdout


def test_the_labels_are_what_the_photographs_clearly_show_and_other_things():
    truth = (ROOT / "examples" / "photos" / "truth.md").read_text(encoding="utf-8")
    visible = {
        name.strip()
        for row in re.findall(r"^\| \w+\.jpg \| (.*?) \|", truth, re.M)
        for name in row.split(",")
    }
    listed = LabelSet.of(ROOT / "examples" / "labels.txt")
    labels = {*listed.names, *(word for words in listed.synonyms for word in words)}
    assert len(visible) > 50
    assert visible <= labels
    assert len(labels - visible) >= 10, "labels that are in no photograph show whether the model invents them"


def test_it_prints_labels_or_why_there_are_none_and_what_to_open(demo):
    folder, said = demo
    *_, last = said.splitlines()
    assert last.startswith("Open demo/index.html in a browser")
    shown = re.split(r"^demo/sample-photos/\w+\.jpg\n", said.split("demo/tags.txt\n")[-1], flags=re.M)[1:]
    assert len(shown) == len(PHOTOS) == 14
    for lines in shown:
        assert re.match(rf" 0\.\d\d  █+|  {WHY}\n", lines), lines
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == [
        "bars",
        "heatmaps",
        "index.html",
        "sample-photos",
        "tags.txt",
    ]


@pytest.mark.parametrize("photo", PHOTOS, ids=lambda photo: photo.stem)
def test_its_pictures_have_the_photo_in_its_own_colors_and_words(demo, photo):
    image = Image.open(photo).convert("RGB")
    for name, corner, height in (("bars", 0, 480), ("heatmaps", 16, 240)):
        with Image.open(demo[0] / name / f"{photo.stem}.png") as picture:
            width = round(image.width * height / image.height)
            own = picture.crop((corner, corner, corner + width, corner + height))
            want = image.resize((width, height), Image.Resampling.LANCZOS)
            assert np.abs(np.asarray(own, int) - np.asarray(want, int)).max() <= 1
            beside = (
                (width, 0, picture.width, 480) if name == "bars" else (0, 256, picture.width, picture.height)
            )
            assert (np.asarray(picture.crop(beside).convert("L")) < 120).sum() > 300, "words or bars"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [1280, 390])
def test_its_page_shows_every_photo_with_labels_and_heat_maps(demo, width):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.goto((demo[0] / "index.html").as_uri())
        assert page.title() == "sample-photos"
        assert page.locator("#count").inner_text() == "14 photos"
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.locator(".tile").first.click()
        for photo in PHOTOS:
            size = Image.open(photo).size
            page.wait_for_function(
                "size => document.getElementById('large').naturalWidth === size", arg=size[0]
            )
            assert page.locator("#name").inner_text().endswith(photo.name)
            bars = page.locator("#bars button[data-heat]")
            if bars.count():
                bars.first.click()
                assert page.locator("#heat").is_visible()
            else:
                assert re.fullmatch(WHY, page.locator("#hint").inner_text())
            page.click("#after")
        assert not complaints
