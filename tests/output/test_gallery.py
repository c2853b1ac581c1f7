"""The gallery: one file that asks nobody for anything, and that a browser opens, filters and shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta.output import gallery
from mltta.output.formats import Page
from mltta.output.gallery import for_gallery, write_gallery
from tests.safety.world import photo
from tests.serve.browser import chromium

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LABELS = ["dog", "cat", "</script><b>x</b>"]
#: what a visitor does, and what is then to be seen, told in the page's title
VISIT = """<script>addEventListener("load", () => {
  const chips = [...document.querySelectorAll("nav button")], said = [];
  const count = () => document.getElementById("count").textContent.split(" ")[0];
  said.push(count(), document.querySelectorAll(".tile").length < 200);
  chips.find((chip) => chip.textContent.startsWith("dog")).click(); said.push(count());
  chips.find((chip) => chip.textContent.startsWith("cat")).click(); said.push(count());
  const search = document.getElementById("search");
  search.value = "photo0007"; search.oninput(); said.push(count());
  chips.forEach((chip) => chip.getAttribute("aria-pressed") === "true" && chip.click());
  said.push(count());
  search.value = ""; search.oninput();
  document.querySelector(".tile:not(.bad)").click();
  document.querySelector("#bars button[data-heat]").click();
  said.push(document.getElementById("photo").open, document.getElementById("heat").style.display);
  dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  said.push(document.getElementById("name").textContent);
  document.title = "said " + said.join("|");
});</script></body>"""


def make(folder: Path, count: int) -> Path:
    """A gallery of many photos, most of which share a thumbnail; every third shows a dog, every fifth a cat."""
    path = folder / "tags.html"
    photo(0, (300, 200)).save(folder / "photo0000.jpg")
    heat = {"dog": np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)}
    extra = for_gallery(folder / "photo0000.jpg", heat)
    records = []
    for number in range(count):
        present = [label for label, every in (("dog", 3), ("cat", 5)) if number % every == 0]
        items = [{"label": label, "score": 0.5 + 0.4 * (number % 7) / 7} for label in present]
        records.append(
            {"image": str(folder / f"photo{number:04}.jpg"), "present": present, "labels": items, **extra}
        )
    records[1] = {"image": "bad.jpg", "error": "bad.jpg: </script> damaged"}
    write_gallery(path, iter(records), Page(path, count, LABELS))
    return path


def test_the_page_names_no_host_and_no_label_can_break_it(tmp_path):
    text = make(tmp_path, 30).read_text(encoding="utf-8")
    assert not re.findall(r"(?:https?:)?//\w[\w.]+\w", re.sub(r"//.*", "", text))
    assert text.count("</script>") == text.count("<script")
    assert "default-src 'none'" in text
    assert '"url":"photo0004.jpg"' in text, "photos are called from where the page is"


def test_thumbnails_of_many_photos_lie_beside_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "INSIDE", 10)
    text = make(tmp_path, 30).read_text(encoding="utf-8")
    files = sorted((tmp_path / "tags_thumbnails").rglob("*.webp"))
    assert len(files) == 29
    assert f'"thumb":"{files[0].relative_to(tmp_path)}"' in text
    assert Image.open(files[0]).size == (300, 200)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_opens_two_thousand_photos_filters_and_shows_where(tmp_path):
    path = make(tmp_path, 2000)
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", VISIT), encoding="utf-8")
    line = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    line += [
        "--virtual-time-budget=3000",
        "--window-size=1200,800",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    done = subprocess.run([*line, path.as_uri()], capture_output=True, text=True, check=False, timeout=120)
    assert "CONSOLE" not in done.stderr, [row for row in done.stderr.splitlines() if "CONSOLE" in row]
    (title,) = re.findall(r"<title>said (.*?)</title>", done.stdout)
    *seen, last = title.split("|")
    assert seen == ["2,000", "true", "667", "134", "0", "1", "true", "block"]
    assert last.endswith("photo0002.jpg"), "the next one that is not damaged"


@pytest.fixture
def album(tmp_path):
    """A gallery of three photos in a folder: a dog and a cat, a cat, and none of the labels."""
    folder = tmp_path / "holidays & more" / "2025"
    folder.mkdir(parents=True)
    images = [folder.parent / "a.jpg", folder / "b.jpg", folder / "c.jpg"]
    shown: list[list[str]] = [["dog", "cat"], ["cat"], []]
    why = "No label scored at least 0.30. Highest: dog 0.21"
    heat = {"cat": np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)}
    records = []
    for seed, (image, labels) in enumerate(zip(images, shown, strict=True)):
        photo(seed, (90, 60)).save(image)
        items = [{"label": label, "score": 0.9} for label in labels]
        record = {"image": str(image), "present": labels, "labels": items}
        records.append(
            record | (for_gallery(image, heat) if labels else for_gallery(image, {}) | {"note": why})
        )
    path = tmp_path / "tags.html"
    page = Page(path, 3, ["dog", "cat"], False, ["puppy", "kitty | kitten"])
    write_gallery(path, iter(records), page)
    return path


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_search_filter_note_and_small_photo(album, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("tags.html", "holidays & more"):
        shutil.move(tmp_path / name, moved / name)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 820})
        page.goto((moved / "tags.html").as_uri())
        assert page.title() == page.locator("h1").inner_text() == "holidays & more", (
            "the folder of the photos"
        )
        texts = lambda what: page.locator(what).all_inner_texts()  # noqa: E731
        assert texts(".tile span") == [
            "dog, cat",
            "cat",
            "No label scored at least 0.30. Highest: dog 0.21",
        ]
        assert texts("nav button:visible") == ["cat\n2", "dog\n1"]
        for word, count in (("kitten", 2), ("kittens", 2), ("pup", 1), ("itten", 0), ("b.jpg", 1)):
            page.fill("#search", word)
            assert page.locator(".tile").count() == count, word
        assert texts("nav button:visible") == ["cat\n1"], "labels without photos leave the filter"
        assert page.locator("#count").inner_text() == "1 of 3 photos"
        page.click("#all")
        assert page.locator("#count").inner_text() == "3 photos"
        assert not page.locator("#all").is_visible()

        page.locator(".tile", has_text="No label").click()
        assert page.locator("#hint").inner_text() == "No label scored at least 0.30. Highest: dog 0.21"
        page.keyboard.press("ArrowLeft")
        page.wait_for_function("document.getElementById('large').getBoundingClientRect().width === 270")
        assert page.locator("#large").evaluate("(image) => image.naturalWidth") == 90, (
            "the photo itself, not a copy"
        )
        back = page.locator("figure").evaluate("(box) => getComputedStyle(box).backgroundColor")
        assert back == "rgb(238, 239, 240)", "no black box"
        assert page.locator("#hint").inner_text() == "Select a label to see where it was found."
        page.click("#bars button")
        assert (
            page.locator("#hint").inner_text() == "Red: where “cat” was found. Dark: the rest of the photo."
        )
